import pytest
import torch

from layline.utils.devices import check_device, choose_device, gpus_for, processor_name


class Gpus:
    """What ``torch.accelerator`` says where there are some."""

    def __init__(self, kind):
        self.kind = kind

    def is_available(self):
        return self.kind is not None

    def current_accelerator(self):
        return torch.device(self.kind)

    def device_count(self):
        return 2


@pytest.mark.parametrize(
    ("kind", "needs_double", "chosen"),
    [(None, False, "cpu"), ("cuda", True, "cuda"), ("mps", False, "mps"), ("mps", True, "cpu")],
)
def test_auto_takes_a_gpu_that_can_do_it(monkeypatch, kind, needs_double, chosen):
    monkeypatch.setattr(torch, "accelerator", Gpus(kind))
    assert choose_device("auto", needs_double).type == chosen
    assert choose_device("cpu", needs_double).type == "cpu"


@pytest.mark.parametrize("name", ["gpu", "", "meta", "cuda:99", "cpu:x", 3, None])
def test_a_device_that_is_not_here_is_one_sentence(monkeypatch, name):
    monkeypatch.setattr(torch, "accelerator", Gpus("cuda"))
    with pytest.raises(ValueError, match=r"finds here, got .*: here are cpu, cuda:0, cuda:1"):
        check_device(name)


@pytest.mark.parametrize(
    ("kind", "device", "needs_double", "expected"),
    [
        ("cuda", "auto", True, ["cuda:0", "cuda:1"]),
        ("cuda", "cuda", False, ["cuda:0", "cuda:1"]),
        ("cuda", "cuda:1", False, []),
        ("cuda", "cpu", False, []),
        ("mps", "auto", True, []),
        (None, "auto", False, []),
    ],
)
def test_gpus_are_named_where_any_of_them_would_do(
    monkeypatch, kind, device, needs_double, expected
):
    monkeypatch.setattr(torch, "accelerator", Gpus(kind))
    assert gpus_for(device, needs_double) == expected


def test_the_processor_has_a_name():
    assert processor_name()
