import pytest
import torch
from torch import nn

from layline.training import BestEpoch


def filled(module, value):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(value)


def run(maes):
    """Offer one epoch per MAE, with every weight equal to the number of the epoch."""
    module = nn.Linear(2, 2)
    best = BestEpoch(module)
    for epoch, mae in enumerate(maes, start=1):
        filled(module, epoch)
        best.offer(epoch, mae)
    return best, module


@pytest.mark.parametrize(
    ("maes", "epoch"),
    [([3, 2, 1], 3), ([1, 2, 3], 1), ([2, 1, 3, 1, 1], 2), ([1, 1, 1], 1), ([0.5, 0.0, 0.0], 2)],
)
def test_the_lowest_mae_wins_and_the_first_on_a_tie(maes, epoch):
    best, module = run(maes)
    assert best.epoch == epoch
    assert best.mae == min(maes)
    best.restore()
    assert (module.weight == epoch).all()


def test_it_tells_what_it_kept():
    best = BestEpoch(nn.Linear(1, 1))
    assert [best.offer(i, mae) for i, mae in enumerate([2.0, 2.0, 1.0, float("nan")])] == [
        True,
        False,
        True,
        False,
    ]


def test_buffers_and_every_module_come_back():
    features, head = nn.BatchNorm1d(3), nn.Linear(3, 2)
    best = BestEpoch(features, head)
    features(torch.randn(8, 3))
    mean, weight = features.running_mean.clone(), head.weight.detach().clone()
    best.offer(1, 0.5)
    features(torch.randn(8, 3) + 7)
    filled(head, 9.0)
    best.restore()
    assert torch.equal(features.running_mean, mean)
    assert torch.equal(head.weight, weight)


def test_nothing_can_be_restored_before_an_epoch():
    best = BestEpoch(nn.Linear(1, 1))
    assert best.epoch == 0
    with pytest.raises(RuntimeError, match="after an epoch was offered"):
        best.restore()
