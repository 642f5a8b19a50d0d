"""What ranges, temperature and a second look are worth, on tables and frozen features.

    python benchmarks/certainty.py --data-folder data --out certainty

Trains three methods on every data set once, with the recipe ``modern``; what is trained already is
not trained again. The rest is arithmetic on what the models say about samples they did not learn
from: 100 random divisions into calibration and test, three kinds of ranges, probabilities before
and after the temperature, and the error if the least certain fifth is left to a person. Writes
``coverage.csv``, ``temperature.csv`` and ``referral.csv`` into the folder ``results/certainty``.

    python benchmarks/certainty.py --tables

makes the tables of docs/certainty.md and its picture from these files.
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from rich.console import Console

import layline
from layline import metrics
from layline.evaluation.diagnostics import referral
from layline.geometry.decoding import median
from layline.model.calibration import (
    COVERAGES,
    Calibration,
    expected_coverage,
    fit_temperature,
    tempered,
)
from layline.model.model import to_probabilities
from layline.training.assembly import read_data
from layline.training.display import Reporter
from layline.training.finished_run import predict_samples
from layline.training.run_folder import RunFolder

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
RESULTS = Path(__file__).resolve().parents[1] / "results" / "certainty"
METHODS = ("arc", "classification", "corn")
SPLITS = 100
QUIET = Console(quiet=True)
LITE = {"backbone": "tf_efficientnet_lite0", "weights": "bundled", "freeze": True, "cache": True}
IMAGES: dict[str, dict[str, Any]] = {
    "utkface8": {"source": "utkface8", "size": 112, **LITE},
    "vehicle-damage3": {"source": "vehicle-damage3", "size": 160, **LITE},
    "retinamnist": {"source": "retinamnist.npz", "size": 64, **LITE},
    "photo-quality": {"source": "photo-quality", "size": 64, **LITE},
}

LARGE = 5000  # rows; with so many, fewer passes in larger steps are enough
FEW = 500  # test samples; of such sets more partitions are measured
PARTITIONS = (1, 2, 3, 4)
FASTER = {"batch_size": 256, "epochs": 10}
GIVEN_SPLITS = ("vehicle-damage3", "retinamnist", "photo-quality")


def jobs(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name the data sets, and what ``layline.train`` is told about each."""
    for file in sorted((folder / "tables").glob("*.csv")):
        with file.open(encoding="utf-8") as lines:
            is_large = sum(1 for _ in lines) > LARGE
        yield file.stem, {"source": file, "label": "rank", **(FASTER if is_large else {})}
    for name, options in IMAGES.items():
        place = folder / str(options["source"])
        yield name, {**options, "source": place if place.exists() else options["source"]}


def outcomes(
    name: str, method: str, options: dict[str, Any], out: Path, partition: int = 0
) -> dict[str, Any]:
    """Train, unless that was done, and give log probabilities and ranks of the parts held out."""
    run = out / "-".join([name, method, *([str(partition)] if partition else [])])
    kept = run.with_name(f"{run.name}.npz")
    if not kept.exists():
        new = {"out": run, "method": method, "partition": partition, **options}
        where = {"resume": run} if run.exists() else new
        layline.train(**where, calibrate=False, verbose=False, report=False)
        folder = RunFolder(run)
        config, model = folder.read_config(), layline.load(run)
        dataset = read_data(config, Reporter(QUIET))
        arrays: dict[str, Any] = {}
        for part in ("validation", "calibration", "test"):
            ranks, found = predict_samples(model, config, dataset, dataset.splits.by_name()[part])
            arrays |= {part: found.log_probs.numpy(), f"{part}_ranks": ranks.numpy()}
        np.savez(kept, **arrays)
    with np.load(kept) as arrays:
        return dict(arrays)


def ordinal_aps(proba: Floats, ranks: Ints, new: Floats, coverage: float) -> tuple[Ints, Ints]:
    """Grow a range from the mode to its likelier neighbour until it has enough probability.

    Ordinal adaptive prediction sets (Lu, Angelopoulos and Pomerantz, 2022), without randomisation.
    """
    reached = grown(proba)
    scores = np.sort([reached[i][rank] for i, rank in enumerate(ranks)])
    place = int(np.ceil((len(scores) + 1) * coverage - 1e-9)) - 1
    return ends(grown(new) <= (scores[place] if place < len(scores) else np.inf) + 1e-12)


def naive(new: Floats, coverage: float) -> tuple[Ints, Ints]:
    """Take the likeliest range that has the probability that is asked for, as it is."""
    reached = grown(new)
    before = np.where(reached >= coverage, reached, np.inf).min(axis=1, keepdims=True)
    return ends(reached <= before + 1e-12)


def grown(proba: Floats) -> Floats:
    """Give for every rank the probability of the range at the moment when it comes in."""
    n, num_classes = proba.shape
    rows = np.arange(n)
    low = high = proba.argmax(axis=1)
    total = proba[rows, low].copy()
    reached = np.full_like(proba, np.inf)
    reached[rows, low] = total
    for _step in range(num_classes - 1):
        left = np.where(low > 0, proba[rows, np.maximum(low - 1, 0)], -1)
        right = np.where(
            high < num_classes - 1, proba[rows, np.minimum(high + 1, num_classes - 1)], -1
        )
        down = left >= right
        low, high = np.where(down, low - 1, low), np.where(down, high, high + 1)
        new = np.where(down, low, high)
        total = total + proba[rows, new]
        reached[rows, new] = total
    return reached


def ends(held: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Give the first and the last rank of each range; the mode where it is empty."""
    return held.argmax(axis=1), held.shape[1] - 1 - held[:, ::-1].argmax(axis=1)


def coverage_rows(name: str, method: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    """Divide what the model did not learn from, a hundred times, and measure three ranges."""
    temperature = fit_temperature(
        torch.from_numpy(found["validation"]), torch.from_numpy(found["validation_ranks"])
    )
    # only samples that are drawn alike can be exchanged
    parts = ["test"] if name in GIVEN_SPLITS else ["calibration", "test"]
    log_probs = torch.from_numpy(np.concatenate([found[part] for part in parts]))
    proba = to_probabilities(apply_temperature(log_probs, temperature))
    ranks = np.concatenate([found[f"{part}_ranks"] for part in parts])
    decided = median(torch.from_numpy(proba)).numpy()
    half = len(ranks) // 2
    measured: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for seed in range(SPLITS):
        order = np.random.default_rng(seed).permutation(len(ranks))
        known, new = order[:half], order[half:]
        calibration = Calibration.fit(
            None, (torch.from_numpy(proba[known]).log(), torch.from_numpy(ranks[known]))
        )
        for coverage in COVERAGES:
            ranges = {
                "RPS": calibration.ranges(proba[new], decided[new], coverage),
                "RPS by class": None,
                "ordinal APS": ordinal_aps(proba[known], ranks[known], proba[new], coverage),
                "naive": naive(proba[new], coverage),
            }
            try:
                ranges["RPS by class"] = calibration.ranges(
                    proba[new], decided[new], coverage, by_class=True
                )
            except ValueError:  # too few samples of a class
                del ranges["RPS by class"]
            for kind, range_ in ranges.items():
                assert range_ is not None
                low, high = range_
                held = (low <= ranks[new]) & (ranks[new] <= high)
                measured.setdefault((kind, coverage), []).append(
                    (float(held.mean()), float((high - low + 1).mean()))
                )
    rows = []
    for (kind, coverage), numbers in measured.items():
        shares, widths = np.array(numbers).T
        least, _ = expected_coverage(coverage, half, len(ranks) - half)
        rows.append(
            {
                "data": name,
                "method": method,
                "ranges": kind,
                "asked": coverage,
                "splits": len(shares),
                "samples": half,
                "coverage": round(shares.mean(), 4),
                "lowest": round(shares.min(), 4),
                "below_1_percent": round((shares < least).mean(), 4),
                "width": round(widths.mean(), 4),
            }
        )
    return rows


def temperature_row(name: str, method: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Measure the probabilities of the test part before and after the temperature.

    Of small sets the test parts of several partitions are put together, each with the temperature
    of its own model: binned into 15, a hundred samples of a perfect model show an error of 0.09.
    ``ece_chance`` is what a perfect model with these probabilities would show.
    """
    ranks = np.concatenate([found["test_ranks"] for found in parts])
    temperatures = [
        fit_temperature(
            torch.from_numpy(found["validation"]), torch.from_numpy(found["validation_ranks"])
        )
        for found in parts
    ]
    row: dict[str, Any] = {
        "data": name,
        "method": method,
        "partitions": len(parts),
        "samples": len(ranks),
        "temperature": round(float(np.median(temperatures)), 4),
    }
    for when, used in (("before", [1.0] * len(parts)), ("after", temperatures)):
        proba = np.concatenate(
            [
                to_probabilities(apply_temperature(torch.from_numpy(found["test"]), temperature))
                for found, temperature in zip(parts, used, strict=True)
            ]
        )
        decided = median(torch.from_numpy(proba)).numpy()
        row |= {
            f"ece_{when}": round(metrics.expected_calibration_error(ranks, proba), 4),
            f"nll_{when}": round(metrics.log_loss(ranks, proba), 4),
            f"rps_{when}": round(metrics.ranked_probability_score(ranks, proba), 4),
            f"mae_{when}": round(metrics.mean_absolute_error(ranks, decided), 4),
        }
    rng, reached = np.random.default_rng(0), proba.cumsum(axis=1)[:, :-1]
    drawn = [(rng.uniform(size=(len(ranks), 1)) > reached).sum(axis=1) for _ in range(50)]
    chance = np.mean([metrics.expected_calibration_error(each, proba) for each in drawn])
    return row | {"ece_chance": round(float(chance), 4)}


def referral_row(name: str, method: str, found: dict[str, Any]) -> dict[str, Any]:
    """Measure the error of all, and of the four fifths that the model is surest of."""
    held_out = torch.from_numpy(found["validation"]), torch.from_numpy(found["validation_ranks"])
    proba = to_probabilities(
        apply_temperature(torch.from_numpy(found["test"]), fit_temperature(*held_out))
    )
    decided = median(torch.from_numpy(proba)).numpy()
    numbers = referral(found["test_ranks"], decided, proba)
    wanted = ("error", "error_at_80", "mae", "mae_at_80", "aurc", "aurc_mae")
    return {
        "data": name,
        "method": method,
        "samples": len(decided),
        **{key: round(numbers[key], 4) for key in wanted},
    }


def coverage_table() -> str:
    """Write what the kinds of ranges are worth, in the mean over data sets and methods."""
    runs = pd.read_csv(RESULTS / "coverage.csv")
    lines = [
        "| ranges | " + " | ".join(f"asked {share:.0%}" for share in COVERAGES) + " |",
        "|---|" + "--:|" * len(COVERAGES),
    ]
    for kind in ("RPS", "ordinal APS", "naive"):
        cells = []
        for share in COVERAGES:
            rows = runs[(runs["ranges"] == kind) & (runs["asked"] == share)]
            held, below, width = rows[["coverage", "below_1_percent", "width"]].mean()
            cells.append(f"{held:.1%}, {width:.2f} grades, {below:.1%} below")
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def set_table() -> str:
    """Write what temperature and review are worth on each data set, the mean over methods."""
    temperature = pd.read_csv(RESULTS / "temperature.csv")
    found = temperature.merge(pd.read_csv(RESULTS / "referral.csv"), on=["data", "method"])
    means = found.groupby("data", sort=False).mean(numeric_only=True)
    means.loc["**mean**"] = means.mean()
    lines = [
        "| data | ECE | by chance | NLL | RPS | errors, all → surest 80 % | MAE likewise |",
        "|---|" + "--:|" * 6,
    ]
    for name, row in means.iterrows():
        cells = [
            f"{row['ece_before']:.3f} → {row['ece_after']:.3f}",
            f"{row['ece_chance']:.3f}",
            f"{row['nll_before']:.3f} → {row['nll_after']:.3f}",
            f"{row['rps_before']:.4f} → {row['rps_after']:.4f}",
            f"{row['error']:.1%} → {row['error_at_80']:.1%}",
            f"{row['mae']:.3f} → {row['mae_at_80']:.3f}",
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(path: Path) -> None:
    """Draw coverage against what was asked for, and the width of two kinds of ranges."""
    from matplotlib import pyplot as plt

    runs = pd.read_csv(RESULTS / "coverage.csv")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
    colours = {"RPS": "#1f5fa8", "ordinal APS": "#c46a1b", "naive": "#8a8f98"}
    for place, (kind, colour) in enumerate(colours.items()):
        rows = runs[runs["ranges"] == kind]
        aside = rows["asked"] + 0.008 * (place - 1)
        left.scatter(aside, rows["coverage"], s=12, color=colour, alpha=0.6, label=kind, lw=0)
    left.plot([0.78, 0.97], [0.78, 0.97], color="black", lw=0.8)
    left.set(xlabel="coverage asked for", ylabel="coverage measured", xticks=COVERAGES)
    left.legend(frameon=False)
    keys = ["data", "method", "asked"]
    wide = runs.pivot_table(index=keys, columns="ranges", values="width").reset_index()
    at = wide[wide["asked"] == 0.9]
    for kind in ("ordinal APS", "naive"):
        right.scatter(at["RPS"], at[kind], s=14, color=colours[kind], alpha=0.7, label=kind, lw=0)
    longest = at[["RPS", "ordinal APS", "naive"]].max().max()
    right.plot([1, longest], [1, longest], color="black", lw=0.8)
    right.set(xlabel="grades in a range at 90 %, RPS", ylabel="grades in the other ranges")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Train what is missing, then measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("certainty"), help="Folder of the runs.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="Only the tables and the picture.")
    given = parser.parse_args()
    if given.tables:
        draw(RESULTS.parents[1] / "docs" / "images" / "coverage.svg")
        print(coverage_table(), set_table(), sep="\n\n")
        return
    if given.data_folder is None:
        parser.error("--data-folder must be given: the folder with the data sets")
    given.out.mkdir(parents=True, exist_ok=True)
    given.results.mkdir(parents=True, exist_ok=True)
    tables: dict[str, list[dict[str, Any]]] = {"coverage": [], "temperature": [], "referral": []}
    for name, options in jobs(given.data_folder):
        for method in METHODS:
            found = outcomes(name, method, options, given.out)
            tables["coverage"] += coverage_rows(name, method, found)
            parts = [found]
            if name not in GIVEN_SPLITS and len(found["test_ranks"]) < FEW:
                parts += [outcomes(name, method, options, given.out, seed) for seed in PARTITIONS]
            tables["temperature"].append(temperature_row(name, method, parts))
            tables["referral"].append(referral_row(name, method, found))
            print(name, method, flush=True)
    for table, rows in tables.items():
        with (given.results / f"{table}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
