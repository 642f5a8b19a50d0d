"""The paper's own numbers: its five tables, as printed.

Wang et al., Controlling Class Layout for Deep Ordinal Classification via Constrained Proxies
Learning, AAAI 2023. Accuracy is in per cent, MAE in ranks, ± the standard deviation over the
partitions where the paper prints one, -- where it has no number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from layline.bench.summaries import find_metric
from layline.bench.tables import Column, Entry, Table

DAGGER = "†"
# Image Aesthetics as a whole is the mean over its four categories.
CATEGORIES = {"Nature": "nature", "Animals": "animals", "Urban": "urban", "People": "people"}
OVERALL = "overall"


class PaperColumn(NamedTuple):
    """A column of a table of the paper.

    Attributes:
        group: The upper line of its heading.
        title: The lower line of its heading.
        data: The data set, in the words of this project.
        metric: ``accuracy`` or ``mae``.
    """

    group: str
    title: str
    data: str
    metric: str


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    Attributes:
        printed: Its rows and columns; its numbers are the references of the entries.
        columns: What each of its columns is about.
    """

    printed: Table
    columns: tuple[PaperColumn, ...]


_METRICS = {"accuracy": "Accuracy (%)", "mae": "MAE"}
_SHORT = {"accuracy": "Acc.", "mae": "MAE"}
_BY_DATA = tuple(
    PaperColumn(group, title, data, metric)
    for group, data in {"Historical Color": "historical-color", "Adience Face": "adience"}.items()
    for metric, title in _METRICS.items()
)
_BY_METRIC = tuple(
    PaperColumn(group, title, data, metric)
    for metric, group in _METRICS.items()
    for title, data in {**CATEGORIES, "Overall": OVERALL}.items()
)
_BRIEF = tuple(
    PaperColumn(group, title, data, metric)
    for group, data in {"HC": "historical-color", "AF": "adience", "IA": OVERALL}.items()
    for metric, title in _SHORT.items()
)


def _table(caption: str, columns: tuple[PaperColumn, ...], text: str) -> PaperTable:
    lines = [[part.strip() for part in line.split("|")] for line in text.strip().splitlines()]
    rows, *numbers = zip(*lines, strict=True)
    printed = Table(
        caption,
        rows,
        tuple(map(_column, columns, numbers)),
        tuple(tuple(map(_entry, line[1:])) for line in lines),
    )
    return PaperTable(printed, columns)


def _column(column: PaperColumn, numbers: Sequence[str]) -> Column:
    """Write a column with as many digits as the paper does."""
    digits = max(len(number.partition(" ")[0].partition(".")[2]) for number in numbers)
    lower_is_better = find_metric(column.metric).lower_is_better
    return Column(column.title, column.group, digits, lower_is_better)


def _entry(text: str) -> Entry:
    if text == "--":
        return Entry()
    mean, _, sd = text.partition(" ± ")
    return Entry(reference=float(mean), reference_sd=float(sd) if sd else None)


HISTORICAL_ADIENCE = _table(
    "Accuracy and MAE on Historical Color and Adience Face",
    _BY_DATA,
    """
Classification                           | 48.94 ± 2.54 | 0.89 ± 0.06 | 54.0 ± 6.3 | 0.61 ± 0.08
Regression                               | 42.24 ± 2.91 | 0.79 ± 0.03 | 56.3 ± 4.9 | 0.56 ± 0.07
Ranking                                  | 44.67 ± 4.24 | 0.81 ± 0.06 | 56.7 ± 6.0 | 0.54 ± 0.08
CNNPOR                                   | 50.12 ± 2.65 | 0.82 ± 0.05 | 57.4 ± 5.8 | 0.55 ± 0.08
GP-DNNOR                                 | 46.60 ± 2.98 | 0.76 ± 0.05 | 57.4 ± 5.5 | 0.54 ± 0.07
SORD                                     | --           | --          | 59.6 ± 3.6 | 0.49 ± 0.05
POEs                                     | 54.68 ± 3.21 | 0.66 ± 0.05 | 60.5 ± 4.4 | 0.47 ± 0.06
UPL, Euclidean Distance                  | 52.20 ± 3.84 | 0.71 ± 0.07 | 58.1 ± 3.2 | 0.48 ± 0.05
UPL, Cosine Similarity                   | 51.32 ± 2.99 | 0.74 ± 0.05 | 56.8 ± 4.5 | 0.51 ± 0.07
CPL, Hard-Linear, Euclidean Distance     | 55.71 ± 3.20 | 0.63 ± 0.06 | 61.6 ± 2.6 | 0.43 ± 0.04
CPL, Hard-Semicircular, Cosine Similarity| 55.41 ± 3.21 | 0.64 ± 0.06 | 61.8 ± 3.1 | 0.43 ± 0.04
CPL, Soft-Poisson, Euclidean Distance    | 57.28 ± 3.41 | 0.65 ± 0.07 | 61.3 ± 3.7 | 0.45 ± 0.05
CPL, Soft-Poisson, Cosine Similarity     | 56.99 ± 2.44 | 0.65 ± 0.05 | 61.1 ± 4.0 | 0.46 ± 0.05
CPL, Soft-Binomial, Euclidean Distance   | 57.96 ± 3.14 | 0.66 ± 0.08 | 62.1 ± 3.6 | 0.44 ± 0.04
CPL, Soft-Binomial, Cosine Similarity    | 57.66 ± 3.11 | 0.65 ± 0.06 | 61.9 ± 4.5 | 0.44 ± 0.05
""",
)

AESTHETICS = _table(
    "Accuracy and MAE on Image Aesthetics",
    _BY_METRIC,
    """
Classification | 70.97 | 68.02 | 68.19 | 71.63 | 69.45 | 0.305 | 0.342 | 0.374 | 0.412 | 0.376
Regression     | 71.52 | 70.72 | 71.22 | 69.72 | 70.80 | 0.378 | 0.397 | 0.387 | 0.400 | 0.390
Ranking        | 69.81 | 69.10 | 66.49 | 66.49 | 68.96 | 0.313 | 0.331 | 0.349 | 0.312 | 0.326
CNNPOR         | 71.86 | 69.32 | 69.09 | 69.94 | 70.05 | 0.294 | 0.322 | 0.325 | 0.321 | 0.316
SORD           | 73.59 | 70.29 | 73.25 | 70.59 | 72.03 | 0.271 | 0.308 | 0.276 | 0.309 | 0.290
POEs           | 73.62 | 71.14 | 72.78 | 72.22 | 72.44 | 0.273 | 0.299 | 0.281 | 0.293 | 0.287
UPL, Euclidean Distance\
               | 71.82 | 68.21 | 69.24 | 68.98 | 69.56 | 0.283 | 0.343 | 0.313 | 0.341 | 0.320
UPL, Cosine Similarity\
               | 72.88 | 68.68 | 69.88 | 69.81 | 70.31 | 0.284 | 0.325 | 0.311 | 0.352 | 0.318
CPL, Hard-Linear, Euclidean Distance\
               | 74.43 | 72.11 | 72.99 | 72.53 | 73.02 | 0.260 | 0.289 | 0.283 | 0.287 | 0.280
CPL, Hard-Semicircular, Cosine Similarity\
               | 74.35 | 71.50 | 72.91 | 72.33 | 72.77 | 0.262 | 0.297 | 0.288 | 0.290 | 0.284
CPL, Soft-Poisson, Euclidean Distance\
               | 74.46 | 71.73 | 72.94 | 72.45 | 72.90 | 0.267 | 0.302 | 0.281 | 0.297 | 0.287
CPL, Soft-Poisson, Cosine Similarity\
               | 74.53 | 71.39 | 72.97 | 72.38 | 72.82 | 0.270 | 0.299 | 0.287 | 0.286 | 0.286
CPL, Soft-Binomial, Euclidean Distance\
               | 74.97 | 72.61 | 73.28 | 72.61 | 73.37 | 0.262 | 0.297 | 0.285 | 0.299 | 0.286
CPL, Soft-Binomial, Cosine Similarity\
               | 74.62 | 72.28 | 73.20 | 72.74 | 73.21 | 0.265 | 0.301 | 0.286 | 0.294 | 0.287
""",
)

UNIMODAL = _table(
    "Unimodal distributions for Soft-CPL",
    _BRIEF,
    """
Euc (P) | 57.28 | 0.65 | 61.3 | 0.45 | 72.90 | 0.287
Euc (B) | 57.96 | 0.66 | 62.1 | 0.44 | 73.37 | 0.286
Euc (E) | 57.24 | 0.65 | 61.4 | 0.45 | 72.85 | 0.288
Euc (T) | 57.25 | 0.66 | 61.3 | 0.45 | 73.42 | 0.287
Cos (P) | 56.99 | 0.65 | 61.1 | 0.46 | 72.82 | 0.286
Cos (B) | 57.66 | 0.65 | 61.9 | 0.44 | 73.21 | 0.287
Cos (E) | 57.01 | 0.66 | 60.9 | 0.45 | 73.20 | 0.288
Cos (T) | 56.97 | 0.67 | 60.7 | 0.45 | 73.19 | 0.288
""",
)

NEGATIVE_EUCLIDEAN = _table(
    f"Student-t similarity and negative Euclidean distance ({DAGGER})",
    _BRIEF,
    f"""
H-L          | 55.71 | 0.63 | 61.6 | 0.43 | 73.02 | 0.280
H-L {DAGGER} | 53.99 | 0.69 | 61.4 | 0.46 | 72.75 | 0.321
S-P          | 57.28 | 0.65 | 61.3 | 0.45 | 72.90 | 0.287
S-P {DAGGER} | 56.44 | 0.73 | 61.1 | 0.47 | 72.13 | 0.318
S-B          | 57.96 | 0.66 | 62.1 | 0.44 | 73.37 | 0.286
S-B {DAGGER} | 56.84 | 0.71 | 61.7 | 0.47 | 72.99 | 0.311
""",
)

NORM = _table(
    "Hard-Linear with a learned and with a fixed length of v0",
    _BRIEF,
    """
learnable v0   | 55.71 | 0.63 | 61.6 | 0.43 | 73.02 | 0.280
Fix ‖v0‖ = 1   | 52.01 | 0.73 | 58.1 | 0.53 | 67.99 | 0.369
Fix ‖v0‖ = 3   | 52.12 | 0.71 | 58.4 | 0.52 | 68.02 | 0.341
Fix ‖v0‖ = 5   | 52.11 | 0.71 | 58.5 | 0.52 | 67.98 | 0.335
Fix ‖v0‖ = 7   | 52.31 | 0.69 | 58.9 | 0.49 | 68.04 | 0.334
""",
)
