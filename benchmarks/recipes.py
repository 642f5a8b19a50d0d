"""The tables of docs/recipes.md, from the results of the grids in results/recipes.

    python benchmarks/recipes.py

``results/recipes/*.toml`` say by which command each file of results was made.
"""

from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).resolve().parents[1] / "results" / "recipes"
# how a set was trained: the file, and its words
SETTINGS = {
    "scratch": "`convnet` from scratch",
    "frozen": "frozen",
    "finetuned": "fine-tuned",
}
METHODS = ["classification", "hard-linear", "hard-semicircular", "arc"]
# each recipe as it decides: the paper by the mode, modern by the median of the distribution
DECODED = {"paper": "mode", "modern": "median"}


def read(*names: str) -> pd.DataFrame:
    """Read results, those that are there."""
    found = [(name, FOLDER / f"{name}.csv") for name in names]
    frames = [pd.read_csv(path).assign(grid=name) for name, path in found if path.exists()]
    return pd.concat(frames, ignore_index=True)


def by_recipe(runs: pd.DataFrame | None = None) -> pd.DataFrame:
    """Give MAE and accuracy of each data set and method, the mean over seeds, by recipe."""
    runs = read(*SETTINGS) if runs is None else runs
    own = runs[runs["decode"] == runs["recipe"].map(DECODED)]
    keys = ["grid", "data", "method", "recipe"]
    return own.groupby(keys, sort=False)[["mae", "accuracy"]].mean().unstack("recipe")


def repeated_table() -> str:
    """Write the change of the MAE as it was published, and as it was when all was run again."""
    published = changes(by_recipe()["mae"])
    repeated = changes(by_recipe(pd.read_csv(FOLDER / "repeated.csv"))["mae"])
    lines = ["| change of the test MAE | published | repeated |", "|---|--:|--:|"]
    for (grid, data), value in published.items():
        again = f"{100 * repeated[grid, data]:+.1f} %"
        lines.append(f"| {data}, {SETTINGS[grid]} | {100 * value:+.1f} % | {again} |")
    means = [each.groupby(level="data").mean().mean() for each in (published, repeated)]
    cells = " | ".join(f"**{100 * mean:+.1f} %**" for mean in means)
    lines.append(f"| mean over the four data sets | {cells} |")
    return "\n".join(lines)


def recipe_tables() -> str:
    """Write both recipes beside each other: MAE with its change, and accuracy."""
    means = by_recipe()
    return "\n\n".join([_mae_table(means["mae"]), _accuracy_table(means["accuracy"])])


def changes(mae: pd.DataFrame) -> pd.Series:
    """Give the change of the MAE from paper to modern for each data set, the mean over methods."""
    change = mae["modern"] / mae["paper"] - 1
    return change.groupby(level=["grid", "data"], sort=False).mean()


def _mae_table(mae: pd.DataFrame) -> str:
    change = changes(mae)
    lines = [
        "| test MAE, `paper` → `modern` | " + " | ".join(f"`{m}`" for m in METHODS) + " | change |",
        "|---|" + "--:|" * (len(METHODS) + 1),
    ]
    for (grid, data), value in change.items():
        cells = [_pair(mae.loc[(grid, data, method)], "{:.3f}") for method in METHODS]
        row = [f"{data}, {SETTINGS[grid]}", *cells, f"{100 * value:+.0f} %"]
        lines.append("| " + " | ".join(row) + " |")
    blank = " | ".join([""] * len(METHODS))
    lines.append(f"| mean over these six | {blank} | **{100 * change.mean():+.1f} %** |")
    by_set = change.groupby(level="data", sort=False).mean()
    lines.append(f"| mean over the four data sets | {blank} | **{100 * by_set.mean():+.1f} %** |")
    return "\n".join(lines)


def _accuracy_table(accuracy: pd.DataFrame) -> str:
    lines = [
        "| test accuracy in % | " + " | ".join(f"`{m}`" for m in METHODS) + " |",
        "|---|" + "--:|" * len(METHODS),
    ]
    for grid, data in dict.fromkeys(index[:2] for index in accuracy.index):
        cells = [_pair(100 * accuracy.loc[(grid, data, method)], "{:.1f}") for method in METHODS]
        lines.append("| " + " | ".join([f"{data}, {SETTINGS[grid]}", *cells]) + " |")
    return "\n".join(lines)


def _pair(values: pd.Series, form: str) -> str:
    return f"{form.format(values['paper'])} → {form.format(values['modern'])}"


CRITERIA = {
    "MAE, median": ("mae", "median", 1),
    "MAE, mode": ("mae", "mode", 1),
    "accuracy, mode": ("accuracy", "mode", -1),
    "RPS": ("rps", "median", 1),
}


def mean_ranks() -> pd.DataFrame:
    """Rank the methods on each data set, and give the mean rank by each criterion."""
    runs = read("methods", "methods-images")
    ranks = {}
    for title, (metric, decode, sign) in CRITERIA.items():
        chosen = runs[runs["decode"] == decode]
        table = chosen.pivot_table(index="data", columns="method", values=metric)
        ranks[title] = (sign * table).rank(axis=1, na_option="bottom").mean()
    return pd.DataFrame(ranks).sort_values("MAE, median")


def rank_table(most: int = 12) -> str:
    """Write the mean ranks of the best methods, and of those that are asked for."""
    table = mean_ranks()
    shown = [*table.index[:most]]
    shown += [name for name in METHODS if name not in shown]
    lines = ["| mean rank in | " + " | ".join(table.columns) + " |"]
    lines.append("|---|" + "--:|" * len(table.columns))
    for name in table.index:
        if name in shown:
            row = [f"`{name}`", *(f"{value:.1f}" for value in table.loc[name])]
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


# the columns of the ablation, and its rows that stand in the table of class weights instead
SETS = {
    "wine": "wine",
    "abalone": "abalone",
    "retinamnist": "retinamnist",
    "photo-quality": "photo-quality",
    "vehicle-damage3 frozen": "cars, frozen",
}
WEIGHTS = {
    "modern": "off",
    "classes by effective number": "`effective`",
    "balanced classes": "`balanced`",
}
NAMED = {"modern": "**`modern`**", "paper": "**`paper`** (with `arc`)"}


def ablation_table() -> str:
    """Write what is left without each ingredient: validation MAE and RPS."""
    runs = _ablation()
    rows = [name for name in runs.index.unique("without") if name not in [*WEIGHTS][1:]]
    rows.sort(key=lambda name: -len(runs.loc[name]))  # what all data have comes first
    return _validation_table("without, or instead", runs, SETS, rows, NAMED, "mae", "rps", (3, 4))


def class_weight_table() -> str:
    """Write what class weights do to the mean over classes, and to that over samples."""
    runs = _ablation()
    return _validation_table(
        "class weights", runs, SETS, [*WEIGHTS], WEIGHTS, "macro_mae", "mae", (3, 3)
    )


def _ablation() -> pd.DataFrame:
    """Read the ablation of the default method, the mean of its seeds."""
    runs = pd.read_csv(FOLDER / "ablation.csv")
    of_default = runs[runs["method"] == "arc"].drop(columns=["method", "seed"])
    return of_default.groupby(["without", "data"], sort=False).mean()


def _validation_table(
    corner: str,
    runs: pd.DataFrame,
    columns: dict[str, str],
    rows: list[str],
    names: dict[str, str],
    first: str,
    second: str,
    digits: tuple[int, int],
) -> str:
    lines = [
        f"| {corner} | " + " | ".join(columns.values()) + " |",
        "|---|" + "--:|" * len(columns),
    ]
    for row in rows:
        cells = []
        for data in columns:
            found = runs.loc[(row, data)] if (row, data) in runs.index else None
            cells.append(
                ""
                if found is None
                else f"{found[first]:.{digits[0]}f} / {found[second]:.{digits[1]}f}"
            )
        lines.append("| " + " | ".join([names.get(row, row), *cells]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(recipe_tables(), rank_table(), ablation_table(), class_weight_table(), sep="\n\n")
