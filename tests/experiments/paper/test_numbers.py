"""The paper's numbers: what can be known of them without the paper."""

import pytest

from layline.experiments.paper import numbers as paper
from layline.experiments.paper.numbers import CATEGORIES, OVERALL, PaperNumber

TABLES = {
    "historical-adience": (paper.HISTORICAL_ADIENCE, 15),
    "aesthetics": (paper.AESTHETICS, 14),
    "unimodal": (paper.UNIMODAL, 8),
    "negative-euclidean": (paper.NEGATIVE_EUCLIDEAN, 6),
    "norm": (paper.NORM, 5),
}


def column(table, data, metric):
    (place,) = [i for i, c in enumerate(table.columns) if (c.data, c.metric) == (data, metric)]
    return {row: numbers[place] for row, numbers in table.rows.items()}


@pytest.mark.parametrize(("table", "rows"), TABLES.values(), ids=TABLES)
def test_every_row_has_a_number_for_every_column_or_none(table, rows):
    assert len(table.rows) == rows
    for numbers in table.rows.values():
        assert len(numbers) == len(table.columns)
        for number, place in zip(numbers, table.columns, strict=True):
            if number is not None:
                low, high = (40, 80) if place.metric == "accuracy" else (0.2, 1)
                assert low < number.mean < high


def test_the_only_numbers_that_the_paper_does_not_have_are_those_of_sord_on_historical_color():
    missing = [
        (name, row, place.data, place.metric)
        for name, (table, _) in TABLES.items()
        for row, numbers in table.rows.items()
        for number, place in zip(numbers, table.columns, strict=True)
        if number is None
    ]
    where = ("historical-adience", "SORD", "historical-color")
    assert missing == [(*where, "accuracy"), (*where, "mae")]


def test_only_the_first_table_prints_deviations_and_all_of_its_numbers_have_one():
    for table, _ in TABLES.values():
        numbers = [n for row in table.rows.values() for n in row if n is not None]
        assert {n.deviation is not None for n in numbers} == {table is paper.HISTORICAL_ADIENCE}


def test_what_the_text_says_about_poes_follows_from_the_table():
    # "outperforms POEs on all three datasets by 1.03 %, 1.1 %, 0.58 % … 0.03, 0.04, 0.007"
    first, third = paper.HISTORICAL_ADIENCE, paper.AESTHETICS
    ours, theirs = "CPL, Hard-Linear, Euclidean Distance", "POEs"
    said = {
        ("historical-color", "accuracy"): 1.03,
        ("adience", "accuracy"): 1.1,
        (OVERALL, "accuracy"): 0.58,
        ("historical-color", "mae"): -0.03,
        ("adience", "mae"): -0.04,
        (OVERALL, "mae"): -0.007,
    }
    for (data, metric), difference in said.items():
        numbers = column(third if data == OVERALL else first, data, metric)
        assert numbers[ours].mean - numbers[theirs].mean == pytest.approx(difference)


@pytest.mark.parametrize("metric", ["accuracy", "mae"])
def test_overall_is_near_the_mean_of_the_categories_for_the_methods_of_the_paper(metric):
    # the others' overall numbers are not the means of their four
    for row in paper.AESTHETICS.rows:
        if row.startswith(("CPL", "UPL", "POEs")):
            four = [column(paper.AESTHETICS, c, metric)[row].mean for c in CATEGORIES.values()]
            whole = column(paper.AESTHETICS, OVERALL, metric)[row]
            assert whole.mean == pytest.approx(sum(four) / 4, abs=1.3 * 10**-whole.digits)


@pytest.mark.parametrize(
    ("table", "row", "same"),
    [
        (paper.UNIMODAL, "Euc (P)", "CPL, Soft-Poisson, Euclidean Distance"),
        (paper.UNIMODAL, "Euc (B)", "CPL, Soft-Binomial, Euclidean Distance"),
        (paper.UNIMODAL, "Cos (P)", "CPL, Soft-Poisson, Cosine Similarity"),
        (paper.UNIMODAL, "Cos (B)", "CPL, Soft-Binomial, Cosine Similarity"),
        (paper.NEGATIVE_EUCLIDEAN, "H-L", "CPL, Hard-Linear, Euclidean Distance"),
        (paper.NEGATIVE_EUCLIDEAN, "S-P", "CPL, Soft-Poisson, Euclidean Distance"),
        (paper.NEGATIVE_EUCLIDEAN, "S-B", "CPL, Soft-Binomial, Euclidean Distance"),
        (paper.NORM, "learnable v0", "CPL, Hard-Linear, Euclidean Distance"),
    ],
)
def test_rows_of_the_appendix_repeat_those_of_the_main_tables(table, row, same):
    for place, number in zip(table.columns, table.rows[row], strict=True):
        main = paper.AESTHETICS if place.data == OVERALL else paper.HISTORICAL_ADIENCE
        assert number.mean == column(main, place.data, place.metric)[same].mean


def test_a_number_keeps_the_digits_that_are_printed():
    numbers = column(paper.HISTORICAL_ADIENCE, "adience", "accuracy")
    assert numbers["Classification"] == PaperNumber(54.0, 6.3, digits=1)
