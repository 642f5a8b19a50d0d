"""Memory: what is free, and the sentence for what does not fit."""

import numpy as np
import pytest
import torch

from layline.utils import memory
from layline.utils.memory import check_fits, free_memory, in_words, memory_errors, memory_sentence

ABSURD = 10**15


def test_what_is_free_is_a_part_of_what_there_is():
    free = free_memory()
    assert free is None or 0 < free < ABSURD


@pytest.mark.parametrize(
    ("folder", "most", "used"),
    [
        ("", "memory.max", "memory.current"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ],
)
def test_a_container_has_what_its_limit_leaves(tmp_path, folder, most, used):
    place = tmp_path / folder
    place.mkdir(exist_ok=True)
    (place / used).write_text("700\n")
    (place / "memory.stat").write_text("anon 600\ninactive_file 50\n")
    assert memory._free_of_group(tmp_path) is None
    (place / most).write_text("max\n")
    assert memory._free_of_group(tmp_path) is None
    (place / most).write_text("1000\n")
    assert memory._free_of_group(tmp_path) == 350


def test_what_fits_passes_and_what_does_not_is_said_with_both_numbers(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda device=None: 3_000_000_000)
    check_fits("the run", {"the weights": 3_000_000_000})
    with pytest.raises(MemoryError) as error:
        check_fits(
            "the run", {"the weights": 4_000_000_000, "nothing": 5, "a batch": 10**9}, "stop"
        )
    assert str(error.value) == (
        "the run must fit into memory, got 5 GB (4 GB for the weights, 1 GB for a batch): 3 GB are "
        "free; stop"
    )
    assert memory_sentence(error.value) == str(error.value)


def test_where_nobody_knows_what_is_free_nothing_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda device=None: None)
    check_fits("the run", {"the weights": ABSURD**3})


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (123_456_789, "123 MB"), (4e13, "40 TB")],
)
def test_bytes_are_written_with_three_digits(size, words):
    assert in_words(size) == words


@pytest.mark.parametrize(
    "fails",
    [
        lambda: torch.empty(ABSURD),
        lambda: torch.empty(2**40, 2**40),
        lambda: torch.empty(10**30),
        lambda: torch.empty(2**40, 2**40, device="meta"),
        lambda: np.empty(ABSURD),
        lambda: bytearray(ABSURD),
        lambda: float(10**400),
    ],
)
def test_what_libraries_say_of_short_memory_becomes_one_kind_of_error(fails):
    with (
        pytest.raises(MemoryError, match=r"must (suffice|fit into memory), got .* needs less") as e,
        memory_errors(),
    ):
        fails()
    assert "\n" not in str(e.value)
    assert e.value.__cause__ is not None


def test_the_size_that_was_tried_is_said():
    with (
        pytest.raises(MemoryError, match="got too little for 4 PB more"),
        memory_errors(),
    ):
        torch.empty(ABSURD)


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), TypeError("no number")])
def test_other_errors_stay_what_they_are(error):
    with pytest.raises(type(error)) as caught, memory_errors():
        raise error
    assert caught.value is error
