"""Which samples make a step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layline.training.batches import EpochBatches
from layline.training.config import Training


def indices(batches: EpochBatches, epoch: int, first_step: int = 0) -> list[list[int]]:
    batches.start(epoch, first_step)
    return [[index for index, _ in part] for part in batches]


@given(
    count=st.integers(12, 200),
    batch_size=st.integers(12, 40),
    processes=st.integers(1, 3),
    accumulation=st.integers(1, 2),
)
def test_an_epoch_takes_every_sample_once_over_all_processes(
    count, batch_size, processes, accumulation
):
    options = Training(batch_size=batch_size, accumulation=accumulation)
    shares = [EpochBatches(count, options, process, processes) for process in range(processes)]
    parts = [part for share in shares for part in indices(share, epoch=2)]
    assert sorted(index for part in parts for index in part) == list(range(count))
    assert all(parts)
    assert {len(share) for share in shares} == {shares[0].steps * accumulation}
    assert sum(shares[0].sizes) == count
    assert max(shares[0].sizes) - min(shares[0].sizes) <= 1


@given(count=st.integers(12, 100), processes=st.integers(1, 3), accumulation=st.integers(1, 2))
def test_a_step_has_the_same_samples_however_it_is_shared(count, processes, accumulation):
    whole = EpochBatches(count, Training(batch_size=12))
    options = Training(batch_size=12, accumulation=accumulation)
    shares = [
        indices(EpochBatches(count, options, process, processes), epoch=3)
        for process in range(processes)
    ]
    for step, batch in enumerate(indices(whole, epoch=3)):
        mine = slice(step * accumulation, (step + 1) * accumulation)
        together = [index for share in shares for part in share[mine] for index in part]
        assert together == batch


def test_the_order_changes_with_the_epoch_and_the_seed_only():
    first = EpochBatches(50, Training(seed=1))
    again, other = EpochBatches(50, Training(seed=1)), EpochBatches(50, Training(seed=2))
    assert indices(first, 1) == indices(again, 1) != indices(first, 2)
    assert indices(first, 1) != indices(other, 1)


def test_an_epoch_can_be_entered_in_the_middle():
    batches = EpochBatches(100, Training(batch_size=10))
    assert indices(batches, 4, first_step=3) == indices(batches, 4)[3:]
    batches.start(4, first_step=3)
    assert len(batches) == 7


def test_keys_carry_the_epoch():
    batches = EpochBatches(10, Training())
    batches.start(7)
    assert {epoch for part in batches for _, epoch in part} == {7}


def test_no_batch_is_a_single_sample():
    assert EpochBatches(33, Training(batch_size=32)).sizes == [17, 16]
    assert EpochBatches(5, Training(batch_size=2)).sizes == [3, 2]


def test_the_rest_is_left_out_if_wanted():
    batches = EpochBatches(70, Training(batch_size=32, drop_last=True))
    assert batches.sizes == [32, 32]
    assert len({i for epoch in range(1, 9) for part in indices(batches, epoch) for i in part}) == 70


@pytest.mark.parametrize(
    ("options", "processes", "message"),
    [
        ({"batch_size": 3, "accumulation": 2}, 2, r"at least processes × accumulation = 4, got 3"),
        ({"batch_size": 64, "drop_last": True}, 1, "drop_last must be false for 40 training"),
        (
            {"batch_size": 64, "accumulation": 41},
            1,
            "a batch must have at least 41 samples, got 40",
        ),
    ],
)
def test_impossible_sizes_are_explained(options, processes, message):
    with pytest.raises(ValueError, match=message):
        EpochBatches(40, Training(**options), 0, processes)
