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
    rows: Int[Tensor, " m"],
    terms: Terms,
) -> Float[Tensor, " n"]:
    """Compute the basic and the unimodal loss of each sample, added up.

    Args:
        layout: Any that moves its proxies against each other; the free one has a shorter way.
        similarity: Any; the paper's two have a shorter way.
        features: One row per sample.
        rows: The ranks whose rows of Q are needed: all in order, or those of the samples.
        terms: What belongs to these rows, and how to add up.
    """
    logits_p, logits_q = _logits(layout, similarity, features, rows, terms.of_sample is not None)
    return matching.losses(logits_p, logits_q, terms)


def _logits(
    layout: Layout, similarity: Similarity, features: Tensor, rows: Tensor, everyone: bool
) -> tuple[Tensor, Tensor]:
    chosen = None if everyone else rows
    if type(layout) is Free and type(similarity) is Cosine:
        return free_cosine.logits(features, layout.proxies(), chosen, similarity.scale)
    by_products = features.dtype == torch.float32 and features.device.type != "mps"
    if type(layout) is Free and type(similarity) is StudentT and by_products:
        return free_student_t.logits(features, layout.proxies(), chosen)
    measured = layout.measure(similarity.measure, features)
    return similarity(measured), similarity(layout.measure_proxies(similarity.measure, rows))
