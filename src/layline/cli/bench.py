"""``layline bench``: many methods on many data sets, with seeds and statistics."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layline.cli.options import (
    INTERRUPTED,
    SOME_FAILED,
    Classes,
    ConfigFile,
    Group,
    GroupBy,
    Label,
    Plugins,
    Root,
    Set,
    Verify,
    read_settings,
)
from layline.utils.registry import load_plugins, resolve_reference
from layline.utils.validation import UserError, check_known, require

if TYPE_CHECKING:
    from rich.console import Console

    from layline.bench.grid import Cell, Grid
    from layline.bench.store import Store
    from layline.bench.tables import Table

EXAMPLES = """
layline bench photo-quality --methods hard-linear,classification --seeds 3
layline bench ratings.csv --label rank --decode mode,median
layline bench photo-quality --recipe paper,modern    compare recipes
layline bench ratings.csv --baseline "sklearn.ensemble:HistGradientBoostingClassifier"
layline bench --grid grid.toml --out results         a grid from a file, see docs/bench.md
layline bench --out results                          resume a grid that was stopped
"""
Text = str | None
Texts = list[str] | None
Jobs = Annotated[int | None, typer.Option(min=1, help="Runs at once. [default: as many as fit]")]
Dask = Annotated[
    Text, typer.Option(metavar="ADDRESS", help="Run on the Dask cluster with this scheduler.")
]
Out = Annotated[Path, typer.Option(help="Folder of the results, new or to resume.")]
Rerun = Annotated[bool, typer.Option("--rerun", help="Run finished runs again.")]
Latex = Annotated[bool, typer.Option("--latex", help="Write the tables as LaTeX, too.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the runs and exit.")]
_MOST_SEEDS = 10_000


def bench(
    sources: Annotated[
        Texts, typer.Argument(help="Folders, CSV or npz files, or names from layline data list.")
    ] = None,
    root: Root = None,
    classes: Classes = None,
    label: Label = None,
    group: Group = None,
    group_by: GroupBy = None,
    methods: Annotated[Text, typer.Option(help="Methods, separated by commas, or all.")] = None,
    seeds: Annotated[Text, typer.Option(help="Number of seeds, or a list such as 0,1,7.")] = None,
    recipe: Annotated[Text, typer.Option(help="Recipes to compare, separated by commas.")] = None,
    backbone: Annotated[Text, typer.Option(help="Backbones, separated by commas.")] = None,
    decode: Annotated[
        Text, typer.Option(help="Decodings; the first selects the epoch. [default: the recipe's]")
    ] = None,
    tune: Annotated[
        Texts,
        typer.Option(metavar="SECTION.KEY=[…]", help="Values to try on the validation samples."),
    ] = None,
    tune_seeds: Annotated[
        Text,
        typer.Option(help="Seeds that choose the tuned values for all. [default: each its own]"),
    ] = None,
    labels: Annotated[
        Text,
        typer.Option(help="Labelled samples per class, such as 5,20,all. [default: all]"),
    ] = None,
    baseline: Annotated[
        Texts,
        typer.Option(metavar="MODULE:NAME(…)", help="Estimator of another library; repeatable."),
    ] = None,
    reference: Annotated[
        Text, typer.Option(help="Method to compare with. [default: classification, or the first]")
    ] = None,
    highlight: Annotated[
        Text, typer.Option(help="Methods drawn in the learning curve. [default: the best eight]")
    ] = None,
    grid: Annotated[Path | None, typer.Option(help="TOML file that describes the grid.")] = None,
    data_folder: Annotated[
        Path | None, typer.Option(help="Folder of relative paths in the grid file.")
    ] = None,
    only: Annotated[Text, typer.Option(help="Run only these data sets of the grid.")] = None,
    config: ConfigFile = None,
    set_: Set = None,
    out: Out = Path("bench"),
    jobs: Jobs = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of each run.")] = None,
    dask: Dask = None,
    rerun: Rerun = False,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the weights of every run.")
    ] = False,
    latex: Latex = False,
    dry_run: DryRun = False,
    verify: Verify = None,
    plugins: Plugins = None,
) -> None:
    """Compare methods: train every combination once, and compare the results."""
    require_libraries("layline bench")
    from rich.console import Console

    from layline.bench.grid import parse_tune, read_grid
    from layline.bench.learning_curves import make_curve_tables
    from layline.bench.statistics import select_runs
    from layline.bench.store import GRID, Store
    from layline.bench.tables import make_tables, write_tables
    from layline.reports.bench import write_bench_figures, write_bench_report
    from layline.training.callbacks import Reporter
    from layline.utils.files import write_text

    load_plugins(plugins or ())
    columns = {"classes": classes, "label": label, "group": group, "group_by": group_by}
    given: dict[str, Any] = {
        "data": [_data_set(source, root, columns) for source in sources or []],
        "methods": _split(methods),
        "seeds": _seeds("--seeds", seeds),
        "tune_seeds": _seeds("--tune-seeds", tune_seeds),
        "recipes": _split(recipe),
        "backbones": _split(backbone),
        "decodings": _split(decode),
        "labels": _labels(labels),
        "reference": reference,
        "highlight": _split(highlight),
        "baselines": baseline or [],
        "plugins": [resolve_reference(each) for each in plugins or ()],
        "threads": threads,
    }
    given = {key: value for key, value in given.items() if value}
    if grid is None and "data" not in given and (out / GRID).exists():
        grid = out / GRID
    settings = read_settings(config, set_)
    whole = read_grid(grid, data_folder, given, settings, parse_tune(tune or []))
    for name in _split(only):
        check_known("--only", name, [each.name for each in whole.data])
    console = Console(stderr=True)
    log = Reporter(console)
    cells, store = whole.cells(log, bool(verify)), Store(out)
    wanted = [cell for cell in cells if not only or cell.labels["data"] in _split(only)]
    if dry_run:
        _list_cells(wanted, whole)
        return
    store.check_folder(cells)
    write_text(out / GRID, whole.to_toml())  # so that a killed grid can be resumed from it
    options = {"jobs": jobs, "dask": dask, "keep_models": keep_models, "rerun": rerun}
    try:
        failed = run_cells(whole.tuning_cells(wanted), store, console, **options)
        if whole.tune_seeds:
            others = store.select_tuned(wanted, whole.tune_seeds)
            failed += run_cells(others, store, console, **options)
    except typer.Exit:  # it was stopped
        store.write_results(whole, cells)
        raise
    compared = select_runs(store.write_results(whole, cells), whole.tune_seeds)
    tables = make_tables(compared, whole)
    write_tables(out / "tables", tables | make_curve_tables(compared, whole), latex)
    write_bench_figures(out)
    write_bench_report(out, out / "report.html")
    show_table(tables["leaderboard"])
    log(f"Tables, figures and report.html are in {out}")
    if failed:
        raise typer.Exit(SOME_FAILED)


def _data_set(source: str, root: Path | None, options: dict[str, str | None]) -> dict[str, Any]:
    from layline import data

    name, root, sentence = data.find_source(source, root, data.names())
    if sentence:
        typer.echo(sentence, err=True)
    given = {option: value for option, value in options.items() if value is not None}
    entry: dict[str, Any] = {"name": name, "source": name, "options": given}
    return entry if root is None else {**entry, "name": root.resolve().stem, "root": root}


def _list_cells(cells: "Sequence[Cell]", grid: "Grid") -> None:
    """List the runs; the settings of other seeds are known only after tuning."""
    from layline.training.callbacks import amount

    first = grid.tuning_cells(cells)
    for cell in first:
        typer.echo("  ".join([cell.key, *cell.labels.values()]))
    typer.echo(amount(len({cell.key for cell in first}), "run"))
    if len(first) < len(cells):
        typer.echo("The other seeds follow with the best settings.")


def _split(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []


def _labels(text: str | None) -> list[int | str]:
    """Read numbers of labels per class; ``all`` is one of them."""
    for word in _split(text):
        if word != "all" and not (word.isdecimal() and int(word) > 0):
            raise UserError(
                f"--labels takes numbers above 0 and all, such as 5,20,all; got {word}."
            )
    return [word if word == "all" else int(word) for word in _split(text)]


def _seeds(option: str, text: str | None) -> list[int] | None:
    """Read a list of seeds, or their number."""
    if text is None:
        return None
    if re.fullmatch(r"\d+( *, *\d+)+", text):
        return [int(seed) for seed in text.split(",")]
    if text.isdecimal() and 1 <= int(text) <= _MOST_SEEDS:
        return list(range(int(text)))
    raise UserError(
        f"{option} needs a number of seeds from 1 to {_MOST_SEEDS:,}, or a list such as 0,1,7; got "
        f"{text!r}."
    )


def require_libraries(command: str) -> None:
    """Check before the first run that the libraries for tables and figures are installed."""
    for library in ("pandas", "matplotlib", "plotly", "jinja2"):
        require(library, extra="report", needed_by=command)


def run_cells(
    cells: "Sequence[Cell]", store: "Store", console: "Console", **options: Any
) -> "list[Cell]":
    """Run the cells that have no result yet with ``run_grid``, and list the failures."""
    from layline.bench.runner import run_grid
    from layline.training.callbacks import Reporter, amount

    log = Reporter(console)
    try:
        failed = run_grid(cells, store, console, **options)
    except KeyboardInterrupt:
        done = sum(store.is_done(cell) for cell in cells)
        runs = amount(len(cells), "run")
        log(f"Stopped; {done} of {runs} finished. Run the same command to resume.")
        raise typer.Exit(INTERRUPTED) from None
    if failed:
        log(f"{amount(len(failed), 'run')} failed. The same command tries again:")
    for cell in failed:
        outcome = store.find(cell)
        log(f"  {cell.name}: {outcome.error if outcome else 'not run'}")
    return failed


def show_table(table: "Table") -> None:
    """Print a table, without the last columns if the terminal is too narrow for them."""
    from layline.bench.tables import to_markdown

    width = get_terminal_size().columns
    while len(table.columns) > 1 and len(to_markdown(table).splitlines()[2]) > width:
        entries = tuple(line[:-1] for line in table.entries)
        table = replace(table, columns=table.columns[:-1], entries=entries)
    typer.echo(to_markdown(table))
