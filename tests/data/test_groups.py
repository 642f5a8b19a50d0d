"""Groups: samples that must stay in one split."""

import pytest

from layline.data.groups import (
    describe_groups,
    find_groups,
    looks_like_group,
    suggest_columns,
    suggest_pattern,
)


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        (r"p\d+", ("p1", "p1", "p2")),
        (r"/p(\d+)_", ("1", "1", "2")),
        (r"(left)|p(\d)", ("left", "1", "2")),  # the first that takes part
        (r"^[^/]+", ("low", "high", "high")),
    ],
)
def test_the_first_capture_or_the_match_names_the_group(pattern, groups):
    paths = ["low/left/p1_a.jpg", "high/p1_b.jpg", "high/p2_a.jpg"]
    assert find_groups(pattern, paths) == groups


@pytest.mark.parametrize("pattern", ["(", r"p\d", "x*"])
def test_a_pattern_that_does_not_fit_is_refused(pattern):
    with pytest.raises(ValueError, match="group_by"):
        find_groups(pattern, [*(f"a{i}.jpg" for i in range(4)), "p1.jpg"])


def test_groups_are_counted():
    assert describe_groups(None) == ()
    (note,) = describe_groups([str(i // 9) for i in range(1600)])
    assert note == "178 groups in 1,600 samples; the largest has 9."
    assert "a group of its own" in describe_groups(["a", "b"])[0]


@pytest.mark.parametrize(
    ("name", "is_group"),
    [
        *((name, True) for name in ("patient", "Patient ID", "patient_id", "PatientID", "case no")),
        *((name, True) for name in ("subjects", "userid", "studyInstance", "animal_id", "siteId")),
        *((name, False) for name in ("id", "class_id", "age", "casein", "liquid", "grid", "paid")),
    ],
)
def test_names_of_people_and_cases_are_known(name, is_group):
    assert looks_like_group(name) is is_group


LABELS = ["low", "high"] * 6


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        ([i // 2 for i in range(12)], True),
        (range(12), False),  # each value once: there is nothing to keep together
        ([0, 1] * 6, False),  # too few for three parts
    ],
)
def test_a_column_that_looks_like_a_group_is_told_where_values_repeat(cells, told):
    found = suggest_columns({"patient_id": [*map(str, cells)]}, LABELS, None)
    assert bool(found) is told
    assert not told or "'patient_id' looks like a group (6 values in 12 rows)" in found[0]


def test_a_column_that_repeats_the_labels_is_no_group():
    labels = ["a", "b", "c"] * 4
    assert suggest_columns({"study": [*map(str.upper, labels)]}, labels, None) == ()


def test_a_given_split_that_divides_a_patient_is_told():
    cells = [str(i // 4) for i in range(12)]
    splits = ["train"] * 5 + ["val"] * 3 + ["TEST"] * 4
    (note,) = suggest_columns({"patient": cells}, LABELS, splits)
    assert "1 of its values occur in several splits" in note


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["low/patient_{}/{}.png"], r"\bpatient_\d+"),
        (["low/P{}_{}.png"], r"\bP\d+"),
        (["low/subj-{}-{}.png"], r"\bsubj-\d+"),
        (["low/{}_{}.png"], None),  # a number may be anything
        (["low/IMG_{}_{}.png"], None),
        (["low/20210{}_{}.png"], None),
        (["low/p{}{}.png"], None),  # every image has its own
        (["low/p{}_{}.png", "low/x{}_{}.png"], None),
    ],
)
def test_names_that_begin_like_patients_are_told(names, pattern):
    paths = [name.format(10 + i // 3, i) for name in names for i in range(30)]
    found = suggest_pattern(paths)
    if pattern is None:
        assert found == ()
    else:
        assert f"(10, such as {find_groups(pattern, paths)[0]!r})" in found[0]
        assert f"'{pattern}'" in found[0]
