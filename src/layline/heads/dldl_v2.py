r"""DLDL-v2: a Gaussian label distribution, and the expected rank at the label.

.. math::
    L(f, y) = -\sum_k t_k(y) \log P_k(f) + |m - y|, \qquad
    t(y) = \operatorname{softmax}_k \Bigl(-\frac{(k - y)^2}{2\sigma^2}\Bigr), \qquad
    m = \sum_k k\,P_k(f)

The paper prints the divergence KL(t ‖ P). The cross entropy here is that plus the entropy of t,
which is constant: the gradients are the same. Both terms have weight one, as in the paper. That σ
counts in ranks is our reading; the paper's ranks are years of age.

The method decides by m: decode with ``"mean"``. The two terms disagree near the ends of the scale,
where t is cut off and its mean is not y. With few classes and a wide σ the best P for a label is
then a compromise: its mode can be a neighbour of y, and for the last ranks m itself stops short of
y. A narrower σ mends both, so where there are fewer than 13 classes σ = 2 is lowered.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from layline.arguments import check_above
from layline.heads.constant_table import ConstantTable
from layline.heads.softmax import SoftmaxHead, expected_rank, rank_distances


class DldlV2(SoftmaxHead):
    """Label distribution and expectation, learned together.

    Args:
        num_classes: K.
        dim: Dimension d of the features.
        sigma: Standard deviation σ of the labels, in ranks. Without it the paper's 2 years, but
            at most a sixth of the scale.
    """

    def __init__(self, num_classes: int, dim: int = 512, *, sigma: float | None = None) -> None:
        super().__init__(num_classes, dim)
        self.sigma = min(2.0, (num_classes - 1) / 6) if sigma is None else sigma
        check_above("sigma", self.sigma, 0, "it is the deviation of the labels, in ranks")
        self._targets = ConstantTable(num_classes)

    def extra_repr(self) -> str:
        """Show the option when the module is printed."""
        return f"{super().extra_repr()}, sigma={self.sigma}"

    def _target(self, ranks: Int[Tensor, " n"]) -> Float[Tensor, "n K"]:
        in_sigmas = rank_distances(ranks, self.num_classes) / self.sigma
        return torch.softmax(-0.5 * in_sigmas.square(), dim=-1)

    def _losses(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        scores = self._scores(features)
        targets = self._targets.table(self.sigma, self._target, ranks, scores)
        mean = expected_rank(torch.softmax(scores, dim=-1))
        return F.cross_entropy(scores, targets, reduction="none") + (mean - ranks).abs()
