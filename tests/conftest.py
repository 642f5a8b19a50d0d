"""What every test shares: one thread each (they run side by side), and a seed."""

import os
import runpy
from pathlib import Path

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


@pytest.fixture(scope="session")
def write_run():
    """Write the folder of a run that was never trained, see ``synthetic_runs.py``."""
    return runpy.run_path(str(Path(__file__).with_name("synthetic_runs.py")))["write_run"]


@pytest.fixture
def gradients():
    """Gradients of a scalar with respect to several tensors, zero where one is not used."""

    def of(scalar, *tensors):
        return torch.autograd.grad(scalar, tensors, allow_unused=True, materialize_grads=True)

    return of
