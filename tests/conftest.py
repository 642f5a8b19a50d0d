"""What every test shares: one thread each (they run side by side), and a seed."""

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # or scikit-learn skips one of its checks

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("layline", deadline=None, derandomize=True)
hypothesis.settings.load_profile("layline")


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def gradients():
    """Gradients of a scalar with respect to several tensors, zero where one is not used."""

    def of(scalar, *tensors):
        return torch.autograd.grad(scalar, tensors, allow_unused=True, materialize_grads=True)

    return of
