import pytest
import torch

from layline.training.config import Config
from layline.training.distributed import make_accelerator
from layline.utils.devices import check_device, choose_device


def pretend_gpus(monkeypatch, kind):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: kind is not None)
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda: torch.device(kind))
    monkeypatch.setattr("torch.accelerator.device_count", lambda: 2)


@pytest.mark.parametrize(
    ("kind", "needs_double", "chosen"),
    [(None, False, "cpu"), ("cuda", True, "cuda"), ("mps", False, "mps"), ("mps", True, "cpu")],
)
def test_auto_takes_a_gpu_that_can_do_it(monkeypatch, kind, needs_double, chosen):
    pretend_gpus(monkeypatch, kind)
    assert choose_device("auto", needs_double).type == chosen
    assert choose_device("cpu", needs_double).type == "cpu"


@pytest.mark.parametrize("name", ["gpu", "", "meta", "cuda:99", "cpu:x", None])
def test_a_device_that_is_not_available_is_an_error(monkeypatch, name):
    pretend_gpus(monkeypatch, "cuda")
    with pytest.raises(ValueError, match=r"is not available; found: cpu, cuda:0, cuda:1\."):
        check_device(name)


def test_a_run_starts_with_empty_variables_of_a_launcher(monkeypatch):
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "")
    accelerator = make_accelerator(Config(data={"source": "photo-quality"}))
    assert accelerator.num_processes == 1
