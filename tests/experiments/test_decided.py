"""Settings that a grid decides are refused by name, others are left alone."""

import pytest

from layline.experiments.decided import check_free

DECIDED = {"training.seed": "name it in seeds"}


def test_what_is_decided_elsewhere_is_named_with_its_value_and_the_cure():
    with pytest.raises(
        ValueError, match=r"training\.seed must not be set, got 3: name it in seeds"
    ):
        check_free({"training": {"epochs": 2, "seed": 3}}, DECIDED)


@pytest.mark.parametrize(
    "settings",
    [{}, {"training": {"epochs": 2}}, {"head": {"seed": 3}}, {"recipe": "released"}],
)
def test_everything_else_passes(settings):
    assert check_free(settings, DECIDED) is None


def test_a_section_is_not_a_value():
    with pytest.raises(ValueError, match="training: must be a section of settings, got 1"):
        check_free({"training": 1}, {"training.seed": "it follows"})
