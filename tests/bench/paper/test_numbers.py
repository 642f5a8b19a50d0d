"""The paper's numbers: what can be known of them without the paper."""

import pytest

from layline.bench.paper import numbers as paper
from layline.bench.paper.numbers import CATEGORIES, OVERALL
from layline.bench.tables import Entry

TABLES = {
    "historical-adience": (paper.HISTORICAL_ADIENCE, 15),
    "aesthetics": (paper.AESTHETICS, 14),
    "unimodal": (paper.UNIMODAL, 8),
    "negative-euclidean": (paper.NEGATIVE_EUCLIDEAN, 6),
    "norm": (paper.NORM, 5),
}


def column(table, data, metric):
    (place,) = [i for i, c in enumerate(table.columns) if (c.data, c.metric) == (data, metric)]
    return {row: fields[place][1].reference for row, fields in table.printed.lines()}


@pytest.mark.parametrize(("table", "rows"), TABLES.values(), ids=TABLES)
def test_every_number_is_an_accuracy_or_an_error(table, rows):
    assert len(table.printed.rows) == rows
    for entries in table.printed.entries:
        for entry, place in zip(entries, table.columns, strict=True):
            if entry.reference is not None:
                low, high = (40, 80) if place.metric == "accuracy" else (0.2, 1)
                assert low < entry.reference < high


def test_the_only_numbers_that_the_paper_does_not_have_are_those_of_sord_on_historical_color():
    missing = [
        (name, row, place.data, place.metric)
        for name, (table, _) in TABLES.items()
        for row, fields in table.printed.lines()
        for (_, entry), place in zip(fields, table.columns, strict=True)
        if entry.reference is None
    ]
    where = ("historical-adience", "SORD", "historical-color")
    assert missing == [(*where, "accuracy"), (*where, "mae")]


def test_only_the_first_table_prints_deviations_and_all_of_its_numbers_have_one():
    for table, _ in TABLES.values():
        numbers = [e for line in table.printed.entries for e in line if e.reference is not None]
        is_first = table is paper.HISTORICAL_ADIENCE
        assert {e.reference_sd is not None for e in numbers} == {is_first}


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
        assert numbers[ours] - numbers[theirs] == pytest.approx(difference)


@pytest.mark.parametrize("metric", ["accuracy", "mae"])
def test_overall_is_near_the_mean_of_the_categories_for_the_methods_of_the_paper(metric):
    # the others' overall numbers are not the means of their four
    digits = {"accuracy": 2, "mae": 3}[metric]
    for row in paper.AESTHETICS.printed.rows:
        if row.startswith(("CPL", "UPL", "POEs")):
            four = [column(paper.AESTHETICS, c, metric)[row] for c in CATEGORIES.values()]
            whole = column(paper.AESTHETICS, OVERALL, metric)[row]
            assert whole == pytest.approx(sum(four) / 4, abs=1.3 * 10**-digits)


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
    for place in table.columns:
        main = paper.AESTHETICS if place.data == OVERALL else paper.HISTORICAL_ADIENCE
        numbers = column(table, place.data, place.metric)
        assert numbers[row] == column(main, place.data, place.metric)[same]


def test_a_number_keeps_its_deviation_and_a_column_the_digits_that_are_printed():
    printed = paper.HISTORICAL_ADIENCE.printed
    entries = dict(zip(printed.rows, printed.entries, strict=True))
    assert entries["Classification"][2] == Entry(reference=54.0, reference_sd=6.3)
    assert [column.digits for column in printed.columns] == [2, 2, 1, 2]
