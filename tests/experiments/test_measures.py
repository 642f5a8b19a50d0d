"""The metrics as tables show them: every one of an evaluation's, with the better end right."""

import numpy as np
import pytest
import torch

from layline.evaluation import DECODED, DISTRIBUTION, measure
from layline.experiments.measures import MEASURES, measure_of


def perfect_and_poor():
    """Metrics of sure and right predictions, and of sure and wrong ones with two modes."""
    ranks = torch.tensor([0, 1, 2, 3] * 5)
    right = torch.eye(4)[ranks] * 0.94 + 0.015
    wrong = torch.full((4, 4), 0.05).scatter(1, torch.tensor([[2, 0], [3, 0], [0, 3], [0, 2]]), 0.4)
    wrong += torch.eye(4)[[2, 3, 0, 0]] * 0.1
    return (measure(ranks, p.log(), "mode") for p in (right, wrong[ranks]))


def test_the_better_end_is_where_a_perfect_model_is():
    perfect, poor = perfect_and_poor()
    for metric, known in MEASURES.items():
        assert (perfect[metric] < poor[metric]) == known.lower_is_better, metric
        assert perfect[metric] != poor[metric], metric


def test_what_depends_on_the_decoding_is_what_an_evaluation_decodes():
    for metric, known in MEASURES.items():
        assert known.decoded == (metric in DECODED), metric
        assert known.decoded != (metric in DISTRIBUTION or metric == "unimodality_rate"), metric


def test_shares_are_per_cent_and_say_so():
    for known in MEASURES.values():
        assert (known.scale == 100) == ("%" in known.title)
    assert measure_of("accuracy").shown(0.57284) == 57.28
    assert measure_of("mae").shown(np.float64(0.4126)) == 0.413


def test_an_unknown_metric_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="metric must be a known name, got 'acuracy': did you"):
        measure_of("acuracy")
