"""The tables of docs/benchmark.md and of the README, from the published runs.

    python benchmarks/edition.py

writes each between its two comments, ``<!-- table: NAME -->`` and ``<!-- end of table -->``.
Differences are means over data sets of the differences of means over seeds; each metric uses its
matching decoding.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from layline.bench.grid import Grid, read_grid
from layline.bench.learning_curves import (
    Curves,
    compare_by_labels,
    gap_table,
    rank_overall,
)
from layline.bench.statistics import METRICS, holm, label_counts, means
from layline.bench.store import GRID, read_results
from layline.bench.tables import Table, to_markdown

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "results" / "edition-3"
LAYOUTS = ROOT / "results" / "layouts"
STRESS = ROOT / "results" / "stress"
PEERS = ROOT / "results" / "peers"
PAGES = (ROOT / "docs" / "benchmark.md", ROOT / "README.md")
DEFAULT, PLAIN = "default", "classification"
FEW = ("5", "10", "20")
# what the paper says, in one line, and the methods that it is about
CLAIMS = (
    ("Proxies on a line are better than proxies without an order", "line", "simplex"),
    ("Proxies on a semicircle are better than proxies without an order", "semicircle", "simplex"),
    ("The line is better than free proxies (UPL), as networks", "hard-linear", "unconstrained"),
    ("The semicircle is better than free proxies (UPL), as networks", "hard-semicircular",
     "unconstrained-cosine"),
    ("Proxies kept unimodal are better than free ones, as networks", "soft-poisson",
     "unconstrained"),
    ("The semicircle is better than a plain classifier, as networks", "hard-semicircular", PLAIN),
)  # fmt: skip


def read(folder: Path) -> tuple[pd.DataFrame, Grid]:
    """Read the published runs of a grid."""
    return read_results(folder), read_grid(folder / GRID)


def compare(frame: pd.DataFrame, method: str, other: str, metric: str) -> pd.DataFrame:
    """Compare two methods at each number of labels; p is corrected for these numbers."""
    decode = METRICS[metric].own_decoding(list(frame["decode"].unique()))
    both = frame[frame["method"].isin([method, other])]
    found = compare_by_labels(both, other, metric, decode).xs(method, level="method")
    return found.assign(p_holm=holm(found["p"].to_numpy()))


def claim_table(frames: Sequence[pd.DataFrame]) -> str:
    """Write the paper's claims by number of labels: MAE, then RPS, in per cent."""
    sizes = label_counts(frames[0])
    lines = [_row(["claim", "", *map(_title, sizes)]), "|---|---|" + "--:|" * len(sizes)]
    for claim, method, other in CLAIMS:
        frame = next(f for f in frames if {method, other} <= set(f["method"]))
        for metric in ("mae", "rps"):
            found = compare(frame, method, other, metric)
            cells = [_difference(found.loc[n]) if n in found.index else "" for n in sizes]
            lines.append(_row([claim if metric == "mae" else "", METRICS[metric].title, *cells]))
    return "\n".join(lines)


def half_table(frame: pd.DataFrame, grid: Grid) -> str:
    """Write the default against a plain classifier, on all data sets and on both halves."""
    sizes = label_counts(frame)
    lines = [_row(["data sets", "", *map(_title, sizes)]), "|---|---|" + "--:|" * len(sizes)]
    groups = {"all": None, "development": "development", "other": "other"}
    for title, group in groups.items():
        names = [each.name for each in grid.data if group in (None, each.group)]
        own = frame[frame["data"].isin(names)]
        for metric in ("mae", "rps"):
            found = compare(own, DEFAULT, PLAIN, metric)
            cells = [_difference(found.loc[n], interval=True) for n in sizes]
            name = f"{title} ({len(names)})" if metric == "mae" else ""
            lines.append(_row([name, METRICS[metric].title, *cells]))
    return "\n".join(lines)


def difference_table(frame: pd.DataFrame, metric: str) -> str:
    """Write the differences of all methods from a plain classifier, in per cent."""
    sizes = label_counts(frame)
    found = Curves(frame, PLAIN).compare(metric)
    lines = [_row(["method", *map(_title, sizes)]), "|---|" + "--:|" * len(sizes)]
    others = [method for method in _by_rank(frame, metric) if method != PLAIN]
    lines += [_row([m, *(_difference(found.loc[n, m]) for n in sizes)]) for m in others]
    return "\n".join(lines)


def rank_table(frame: pd.DataFrame) -> str:
    """Write mean ranks over pairs of a data set and a number of labels, with few and with all."""
    few = frame[frame["labels"].isin(FEW)]
    columns = {
        f"{METRICS[metric].title}, {title}": _ranks(own, metric)
        for metric in ("mae", "rps")
        for title, own in (("5 to 20 per class", few), ("all", frame))
    }
    lines = [_row(["method", *columns]), "|---|" + "--:|" * len(columns)]
    for method in _by_rank(frame, "mae"):
        cells = []
        for ranks in columns.values():
            text = f"{ranks[method]:.2f}"
            cells.append(f"**{text}**" if ranks[method] == ranks.min() else text)
        lines.append(_row([method, *cells]))
    return "\n".join(lines)


def set_table(frame: pd.DataFrame) -> str:
    """Write the MAE of the default and of a plain classifier on each data set."""
    sizes = label_counts(frame)
    tables = {n: means(frame[frame["labels"] == n], "mae", "median") for n in sizes}
    lines = [_row(["data", *map(_title, sizes)]), "|---|" + "--:|" * len(sizes)]
    for data in dict.fromkeys(frame["data"]):
        cells = []
        for table in tables.values():
            has = data in table.index
            cells.append(
                f"{table.loc[data, DEFAULT]:.3f} / {table.loc[data, PLAIN]:.3f}" if has else ""
            )
        lines.append(_row([data, *cells]))
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """Write every table, by its name in the pages."""
    frame, grid = read(FOLDER)
    layouts, _ = read(LAYOUTS)
    stress, _ = read(STRESS)
    peers, _ = read(PEERS)
    noise, gap = (Curves(stress[stress["stress"] == s], PLAIN, s) for s in ("noise", "gap"))
    return {
        "mae": difference_table(frame, "mae"),
        "rps": difference_table(frame, "rps"),
        "ranks": rank_table(frame),
        "peers_mae": difference_table(peers, "mae"),
        "peers_rps": difference_table(peers, "rps"),
        "claims": claim_table([frame, layouts]),
        "halves": half_table(frame, grid),
        "sets": set_table(frame),
        "noise": difference_table(noise.frame, "mae"),
        "gap_mae": difference_table(gap.frame, "mae"),
        "gap": _plain(gap_table(gap)),
    }


def filled(page: str, written: Mapping[str, str]) -> str:
    """Put the tables into a page, each between its comments."""
    return re.sub(
        r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)",
        lambda found: f"{found[1]}{written[found[2]]}\n{found[3]}",
        page,
        flags=re.DOTALL,
    )


def main() -> None:
    """Write the tables into the pages."""
    written = tables()
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), written), encoding="utf-8")


def _ranks(frame: pd.DataFrame, metric: str) -> "pd.Series[float]":
    decode = METRICS[metric].own_decoding(list(frame["decode"].unique()))
    return rank_overall(frame, metric, decode).ranks


def _by_rank(frame: pd.DataFrame, metric: str) -> list[str]:
    return list(map(str, _ranks(frame, metric).index))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _title(size: str) -> str:
    return size if size == "all" else f"{size} per class"


def _difference(line: "pd.Series[float]", interval: bool = False) -> str:
    """Write a difference, in bold if it is significant, with its interval if wanted."""
    text = f"{line['difference']:+.1f}"
    text = f"**{text}**" if line["p_holm"] < 0.05 else text
    has_ends = interval and pd.notna(line["low"])  # with too few data sets there are none
    ends = f" ({line['low']:+.1f} to {line['high']:+.1f})" if has_ends else ""
    return (text + ends).replace("-", "−")


def _plain(table: Table) -> str:
    """Write a table in Markdown, without its caption."""
    return to_markdown(table).partition("\n\n")[2].strip()


if __name__ == "__main__":
    main()
