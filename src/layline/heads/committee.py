r"""A committee: several heads on the same features, trained together and averaged.

.. math:: L = \frac{1}{M} \sum_m L_m(f, y), \qquad P_k(f) = \frac{1}{M} \sum_m P_{mk}(f)

With few labels, methods that use the order are better: thresholds (``ranking``), a number
(``regression``), proxies on a fixed semicircle (``hard-semicircular``). With many labels a linear
layer for each class (``classification``) catches up. The average is never far from the best of
them. docs/decisions/committee.md compares members.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn

from layline.geometry.similarities import Features, PerClass, PerSample, Proxies, Ranks, Scalar
from layline.heads.base import HasProxies, OrdinalHead
from layline.utils.validation import UserError


class Committee(OrdinalHead):
    """Several heads on the same features, averaged.

    Args:
        members: The heads, all for the same number of classes and the same dimension.
    """

    def __init__(self, members: Sequence[OrdinalHead]) -> None:
        sizes = {(member.num_classes, member.dim) for member in members}
        if len(sizes) != 1:
            raise UserError(f"members must be heads of the same size, got {sorted(sizes)}")
        super().__init__(*sizes.pop())
        self.members = nn.ModuleList(members)

    def _heads(self) -> list[OrdinalHead]:
        return [member for member in self.members if isinstance(member, OrdinalHead)]

    def _log_probs(self, features: Features) -> PerClass:
        each = torch.stack([member._log_probs(features) for member in self._heads()])
        return each.logsumexp(dim=0) - math.log(len(each))

    def _losses(self, features: Features, ranks: Ranks) -> PerSample:
        each = [member._losses(features, ranks) for member in self._heads()]
        return torch.stack(each).mean(dim=0)

    def _batch_loss(
        self, features: Features, ranks: Ranks, weights: PerSample | None
    ) -> Scalar | float:
        each = [member._batch_loss(features, ranks, weights) for member in self._heads()]
        return sum(each) / len(each)

    def set_num_data(self, num_data: int) -> None:
        """Tell the members the number of training samples."""
        for member in self._heads():
            member.set_num_data(num_data)


class ProxyCommittee(Committee):
    """A committee that shows the layout of its first member with proxies."""

    def proxies(self) -> Proxies:
        """Return the proxies of this member, in label order."""
        return next(head for head in self._heads() if isinstance(head, HasProxies)).proxies()
