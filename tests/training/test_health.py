"""Signs that training goes wrong."""

import pytest
import torch

from layline import heads
from layline.training.health import worry


@pytest.mark.parametrize("name", heads.HEADS)
def test_no_head_is_worrying_before_it_is_trained(name):
    assert worry(heads.create(name, 5, 8)) is None


@pytest.mark.parametrize("name", ["hard-linear", "elastic-linear"])
def test_proxies_that_come_together_are_noticed(name):
    head = heads.create(name, 5, 8)
    with torch.no_grad():
        head.layout.vectors *= 0.05 / head.layout.vectors.norm()
    assert worry(head).startswith("The proxies have come together, 0.05 apart, before")
    assert "--set head.options.norm=3" in worry(head)


def test_proxies_that_are_kept_apart_cannot_come_together():
    head = heads.create("hard-linear", 5, 8, norm=0.01)
    assert worry(head) is None
