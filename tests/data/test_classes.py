import pytest

from layline.data.classes import order_found, parse_names, rank_labels


def test_the_order_is_the_natural_one_or_the_one_given():
    assert order_found({"10", "9"}, None, "labels") == (
        ("9", "10"),
        "The classes are in the natural order of the labels",
    )
    assert order_found({"low", "high"}, "low, high", "labels") == (
        ("low", "high"),
        "The classes are in the order given",
    )
    assert order_found({"0", "1"}, [1, 0], "labels")[0] == ("1", "0")


@pytest.mark.parametrize("classes", ["a,,b", "a,b,a", ["a", ""], "", ["1", 1]])
def test_names_are_different_and_not_empty(classes):
    with pytest.raises(ValueError, match="classes must be different names, got"):
        parse_names("classes", classes)


def test_a_class_that_the_data_lack_is_named():
    with pytest.raises(ValueError, match=r"must be labels of the data, got 'c', 'd': .* only a, b"):
        order_found({"a", "b"}, "a,b,c,d", "labels")


@pytest.mark.parametrize("found", [{"Mild", "mild", "none"}, {"1", "1.0", "2"}, {"a1", "a01"}])
def test_two_spellings_of_one_class_are_not_given_an_order(found):
    with pytest.raises(ValueError, match=r"labels must have an order, got '.*' and '.*': write"):
        order_found(found, None, "labels")
    assert len(order_found(found, sorted(found), "labels")[0]) == len(found)


def test_ranks_are_places_among_the_classes():
    ranks, classes, _ = rank_labels(["b", "a", "b"], [2, 3, 4], None)
    assert ranks.tolist() == [1, 0, 1]
    assert classes == ("a", "b")


def test_a_label_outside_the_classes_is_named_with_its_row():
    with pytest.raises(ValueError, match="labels must be among a, b, got 'c' in row 9: correct it"):
        rank_labels(["a", "b", "c"], [2, 3, 9], "a,b")
