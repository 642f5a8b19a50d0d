"""Losses, log probabilities and gradients equal those of version 0.2.0, stored in oracle.npz.

There, the gradients of the hard layouts were written by hand, and gp-dnnor, proxy-anchor and
soft-triple were computed by gpytorch and pytorch-metric-learning. A key is ``method|options``.
``parameters`` holds the features, then the parameters in alphabetical order; ``expected`` holds the
weighted losses, the log probabilities, and the gradients in the order of ``parameters``.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from layline.heads import HEADS, create

ORACLE = np.load(Path(__file__).with_name("oracle.npz"))
KEYS = [key.removesuffix("|expected") for key in ORACLE if key.endswith("|expected")]
RANKS = torch.tensor([2, 0, 2, 3, 2, 3])
WEIGHTS = torch.tensor([1.5, 0.5, 1.5, 1.0, 1.0, 1.5])
NUM_CLASSES, DIM = 5, 4


def test_every_head_is_in_the_oracle():
    """Except newer ones, which test_committee.py and test_joint_layout.py compare."""
    newer = {"committee", "joint-layout"}
    assert {key.partition("|")[0] for key in KEYS} == set(HEADS.builtin) - newer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("key", KEYS)
def test_numbers_are_those_of_the_release(key, dtype):
    name, _, options = key.partition("|")
    head = create(name, NUM_CLASSES, DIM, **json.loads(options)).to(dtype).eval()
    parameters = [value for _, value in sorted(head.named_parameters())]
    given = torch.from_numpy(ORACLE[f"{key}|parameters"]).to(dtype)
    features, rest = given.tensor_split([len(RANKS) * DIM])
    features = features.view(-1, DIM).requires_grad_()
    torch.nn.utils.vector_to_parameters(rest, parameters)
    losses = head(features, RANKS, WEIGHTS.to(dtype), reduction="none")
    gradients = torch.autograd.grad(
        head(features, RANKS, WEIGHTS.to(dtype)),
        [features, *parameters],
        allow_unused=True,
        materialize_grads=True,
    )
    expected = torch.from_numpy(ORACLE[f"{key}|expected"])
    tolerance = 1e-10 if dtype == torch.float64 else 2e-6
    for actual in (losses, head(features), *gradients):
        wanted, expected = expected.tensor_split([actual.numel()])
        size = wanted.abs().max().clamp(min=0.1).item() if len(wanted) else 1
        torch.testing.assert_close(actual.flatten().double(), wanted, rtol=0, atol=tolerance * size)
    assert not len(expected)
