"""The way back from a fused loss to the plain one: second derivatives are rare, not forbidden."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call

from layline.geometry import divergence
from layline.geometry.layouts.base import Layout
from layline.geometry.similarities import Similarity

Plain = Callable[[Tensor, Tensor, Tensor], Tensor]


class _BasicLoss(nn.Module):
    """The basic loss as a module, so that its vectors can be replaced for one call."""

    def __init__(self, layout: Layout, similarity: Similarity) -> None:
        super().__init__()
        self.layout = layout
        self.similarity = similarity

    def forward(
        self, features: Float[Tensor, "n d"], ranks: Int[Tensor, " n"]
    ) -> Float[Tensor, " n"]:
        log_p = divergence.log_p(self.layout, self.similarity, features)
        log_q = divergence.log_q(self.layout, self.similarity, ranks)
        return divergence.basic_loss(log_q, log_p)


def plain_losses(
    layout: Layout,
    similarity: Similarity,
    ranks: Int[Tensor, " n"],
    features: Float[Tensor, "n d"],
    vectors: Float[Tensor, "N d"],
) -> Float[Tensor, " n"]:
    """Compute the basic loss with these vectors in the place of the layout's own."""
    module = _BasicLoss(layout, similarity)
    result: Tensor = functional_call(module, {"layout.vectors": vectors}, (features, ranks))
    return result


def is_transformed() -> bool:
    """Tell whether ``torch.func`` or forward mode is at work: they want more than a gradient."""
    transforms: bool = torch._C._are_functorch_transforms_active()
    return transforms or forward_ad._current_level >= 0


def differentiable_gradients(
    plain: Callable[..., Tensor | tuple[Tensor, ...]], inputs: Sequence[Tensor], *gradients: Tensor
) -> tuple[Tensor | None, ...]:
    """Give the gradients of a plain computation with a graph of their own, for ``create_graph``."""
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    with torch.enable_grad():
        found = iter(torch.autograd.grad(plain(*inputs), wanted, gradients, create_graph=True))
    return tuple(next(found) if tensor.requires_grad else None for tensor in inputs)
