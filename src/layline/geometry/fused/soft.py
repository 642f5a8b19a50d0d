"""The losses of a soft layout: its logits by the shortest way, matched in one step."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from layline.geometry.fused import free_cosine, free_student_t, matching
from layline.geometry.fused.matching import Terms
from layline.geometry.layouts import Free, Layout
from layline.geometry.similarities import Cosine, Similarity, StudentT


def losses(
    layout: Layout,
    similarity: Similarity,
    features: Float[Tensor, "n d"],
    rows: Int[Tensor, " m"] | None,
    terms: Terms,
) -> Float[Tensor, " n"]:
    """Compute the basic and the unimodal loss of each sample, added up.

    Args:
        layout: Any that moves its proxies against each other; the free one has a shorter way.
        similarity: Any; the paper's two have a shorter way.
        features: One row per sample.
        rows: The ranks whose rows of Q are needed, those of the samples; None is all in order.
        terms: What belongs to these rows, and how to add up.
    """
    return matching.losses(_logits(layout, similarity, features, rows), terms)


def _logits(
    layout: Layout, similarity: Similarity, features: Tensor, rows: Tensor | None
) -> Float[Tensor, "both K"]:
    if type(layout) is Free and type(similarity) is Cosine:
        return free_cosine.logits(features, layout.proxies(), rows, similarity.scale)
    if type(layout) is Free and type(similarity) is StudentT:
        return free_student_t.logits(features, layout.proxies(), rows)
    if rows is None:
        rows = torch.arange(layout.num_classes, device=features.device)
    measured = layout.measure(similarity.measure, features)
    between = layout.measure_proxies(similarity.measure, rows)
    return similarity(torch.cat([measured, between]))
