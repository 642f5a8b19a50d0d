"""Groups: what must stay in one part."""

import pytest

from layline.data.groups import (
    describe_groups,
    groups_by,
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
    assert groups_by(pattern, paths) == groups


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", r"group_by must be a regular expression, got '\(': missing \)"),
        (
            r"p\d",
            r"match every path, got 'p\\d' without a match in 4 of 5, such as a0\.jpg, a1\.jpg, "
            r"a2\.jpg: change it",
        ),
        ("x*", r"without a match in 5 of 5"),  # an empty match is none
    ],
)
def test_a_pattern_that_does_not_fit_is_answered_with_examples(pattern, message):
    with pytest.raises(ValueError, match=message):
        groups_by(pattern, [*(f"a{i}.jpg" for i in range(4)), "p1.jpg"])


def test_groups_are_counted():
    assert describe_groups(None, "images") == ()
    groups = [str(i // 9) for i in range(1600)]
    assert describe_groups(groups, "images") == ("178 groups in 1,600 images, the largest has 9",)
    (note,) = describe_groups(["a", "b"], "rows")
    assert note == "2 groups in 2 rows: each is a group of its own, so grouping changes nothing"


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
    if told:
        assert found == (
            "The column 'patient_id' looks like a group (6 values in 12 rows) and is not used as "
            "one: --group patient_id keeps its samples in one part",
        )


def test_a_column_that_repeats_the_labels_is_no_group():
    labels = ["a", "b", "c"] * 4
    assert suggest_columns({"study": [*map(str.upper, labels)]}, labels, None) == ()


def test_a_given_split_that_divides_a_patient_is_told():
    cells = [str(i // 4) for i in range(12)]
    splits = ["train"] * 5 + ["val"] * 3 + ["TEST"] * 4
    (note,) = suggest_columns({"patient": cells}, LABELS, splits)
    assert "and 1 of them are in several parts of the split" in note


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
        assert f"(10 such as {groups_by(pattern, paths)[0]!r} in 30 images)" in found[0]
        assert f"--group-by '{pattern}'" in found[0]
