"""The losses of the paper's layouts in one step, with gradients that were worked out on paper.

Autograd keeps every (n, K) array of a step until its backward pass, and walks over each of them
again. On a line and on an arc a sample's gradient comes down to three numbers, which the forward
pass can make while it has the arrays at hand. Free proxies are compared with the features and with
each other in one step, and both losses are taken in another.

``divergence.py`` stays the definition: these forms equal it, and leave it what they do not know.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from layline.geometry.fused import arc, line
from layline.geometry.fused.matching import Terms
from layline.geometry.fused.plain import is_transformed
from layline.geometry.fused.soft import losses as soft_losses
from layline.geometry.layouts import Even, Layout, Linear, Semicircular
from layline.geometry.similarities import Cosine, Similarity, StudentT


@dataclass(frozen=True, eq=False)
class Form:
    """A short way to the basic loss of one composition.

    Attributes:
        constants: Makes what only K and the similarity decide, some rows of K, in float64.
        losses: Computes what ``divergence.basic_loss`` does, with Q detached as there, from the
            layout, the similarity, the features, their ranks and the constants.
    """

    constants: Callable[[int, Similarity], tuple[Tensor, ...]]
    losses: Callable[[Layout, Similarity, Tensor, Tensor, tuple[Tensor, ...]], Tensor]


FORMS: dict[tuple[type[Layout], type, type[Similarity]], Form] = {
    (Linear, Even, StudentT): Form(line.constants, line.losses),
    (Semicircular, Even, Cosine): Form(arc.constants, arc.losses),
}


def find(layout: Layout, similarity: Similarity) -> Form | None:
    """Look for a fused form of this composition."""
    return FORMS.get((type(layout), type(getattr(layout, "spacing", None)), type(similarity)))


__all__ = ["FORMS", "Form", "Terms", "find", "is_transformed", "soft_losses"]
