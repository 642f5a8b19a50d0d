"""``layline bench``: many methods on many data sets, with seeds and statistics."""

from collections.abc import Sequence
from pathlib import Path
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
from layline.utils.errors import UserError
from layline.utils.optional import require
from layline.utils.plugins import load_plugins, resolve_reference

if TYPE_CHECKING:
    from rich.console import Console

    from layline.bench.grid import Cell, Grid
    from layline.bench.store import Store
    from layline.bench.tables import Table

EXAMPLES = """
Examples:

  layline bench photo-quality --methods hard-linear,classification --seeds 3

  layline bench ratings.csv --label rank --decode mode,median

  layline bench photo-quality --recipe paper,modern    compare recipes

  layline bench ratings.csv --baseline "sklearn.ensemble:HistGradientBoostingClassifier"

  layline bench --grid grid.toml --out results         a grid from a file, see docs/bench.md

  layline bench --out results                          resume a grid that was stopped

  layline bench --out results --merge other            use the runs of another machine
"""
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Number of runs at once. [default: as many as fit]")
]
Dask = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Run on the Dask cluster with this scheduler."),
]
Rerun = Annotated[bool, typer.Option("--rerun", help="Run finished runs again.")]
Latex = Annotated[bool, typer.Option("--latex", help="Write the tables as LaTeX, too.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the runs and exit.")]


def bench(
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Folders, CSV or npz files, or names from layline data list."),
    ] = None,
    root: Root = None,
    classes: Classes = None,
    label: Label = None,
    group: Group = None,
    group_by: GroupBy = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Names separated by commas, or all; see layline methods."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Number of seeds, or a list such as 0,1,7.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Names of recipes to compare, separated by commas.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Names of backbones, separated by commas.")
    ] = None,
    decode: Annotated[
        str | None,
        typer.Option(
            help="Decodings separated by commas; the first selects the epoch. [default: the "
            "recipe's]"
        ),
    ] = None,
    tune: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SECTION.KEY=[…]", help="Values to try for every method on validation samples."
        ),
    ] = None,
    tune_seeds: Annotated[
        str | None,
        typer.Option(help="Seeds that choose the tuned values for all seeds. [default: each seed]"),
    ] = None,
    baseline: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:NAME(…)",
            help="Estimator of another library, on the same table or frozen features; may be "
            "repeated.",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="The method to compare the others with. [default: classification, or the first]"
        ),
    ] = None,
    grid: Annotated[Path | None, typer.Option(help="TOML file that describes the grid.")] = None,
    data_folder: Annotated[
        Path | None, typer.Option(help="Folder of the relative paths in the grid file.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Run only these data sets of the grid, separated by commas.")
    ] = None,
    config: ConfigFile = None,
    set_: Set = None,
    out: Annotated[Path, typer.Option(help="Folder of the results, new or to resume.")] = Path(
        "bench"
    ),
    jobs: Jobs = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of each run.")] = None,
    dask: Dask = None,
    rerun: Rerun = False,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the weights of every run.")
    ] = False,
    merge: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Copy the finished runs of another folder first."),
    ] = None,
    latex: Latex = False,
    dry_run: DryRun = False,
    verify: Verify = None,
    plugins: Plugins = None,
) -> None:
    """Compare methods: train every combination once, and compare the results."""
    require_libraries("layline bench")
    from rich.console import Console

    from layline.bench.grid import parse_tune, read_grid
    from layline.bench.results import (
        GRID,
        chosen_cells,
        leaderboard,
        write_grid,
        write_results,
        write_runs,
    )
    from layline.bench.store import Store
    from layline.reports.bench import write_bench_figures, write_bench_report
    from layline.training.display import Reporter, amount

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
        "reference": reference,
        "baselines": baseline or [],
        "plugins": [resolve_reference(each) for each in plugins or ()],
        "threads": threads,
    }
    given = {key: value for key, value in given.items() if value}
    if grid is None and "data" not in given and (out / GRID).exists():
        grid = out / GRID
    settings = read_settings(config, set_)
    whole = read_grid(grid, data_folder, given, settings, parse_tune(tune or []))
    console = Console(stderr=True)
    log = Reporter(console)
    cells = whole.cells(log, bool(verify))
    store, wanted = Store(out), whole.select(_split(only), cells)
    if dry_run:
        _list_cells(wanted, whole)
        return
    store.check_folder()
    write_grid(whole, out)  # before any run, so that a killed grid can be resumed from it
    for other in merge or []:
        log(f"{amount(store.merge(other), 'run')} copied from {other}")

    def run(cells: "Sequence[Cell]", rerun: bool) -> "list[Cell]":
        options = {"jobs": jobs, "dask": dask, "keep_models": keep_models, "rerun": rerun}
        return run_cells(cells, store, console, **options)

    try:
        if whole.tune_seeds:
            tuning = whole.tuning_cells(wanted)
            run(tuning, rerun)
            wanted = chosen_cells(wanted, store, whole.tune_seeds)
            if rerun:
                run([cell for cell in wanted if cell not in tuning], rerun)
        failed = run(wanted, rerun and not whole.tune_seeds)
    except typer.Exit:  # it was stopped
        write_runs(whole, cells, store)
        raise
    frame = write_results(whole, cells, store, latex)
    write_bench_figures(out)
    write_bench_report(out, out / "report.html")
    show_table(leaderboard(frame, whole.used_decodings()))
    log(f"Tables, figures and report.html are in {out}")
    if failed:
        raise typer.Exit(SOME_FAILED)


def _data_set(source: str, root: Path | None, options: dict[str, str | None]) -> dict[str, Any]:
    from layline import data

    name, root, sentence = data.find_source(source, root, data.names())
    if sentence:
        typer.echo(sentence, err=True)
    entry: dict[str, Any] = {"name": name, "source": name}
    wanted = {option: value for option, value in options.items() if value is not None}
    if wanted:
        entry["options"] = wanted
    return entry if root is None else {**entry, "name": root.resolve().stem, "root": root}


def _list_cells(cells: "Sequence[Cell]", grid: "Grid") -> None:
    """List the runs; the settings of further seeds are known only after tuning."""
    from layline.training.display import amount

    first = grid.tuning_cells(cells)
    for cell in first:
        typer.echo("  ".join([cell.key, *cell.labels.values()]))
    typer.echo(amount(len({cell.key for cell in first}), "run"))
    if len(first) < len(cells):
        others = {tuple(v for k, v in cell.labels.items() if k != "setting") for cell in cells}
        others -= {tuple(v for k, v in cell.labels.items() if k != "setting") for cell in first}
        typer.echo(f"{amount(len(others), 'run')} of the other seeds follow with the best settings")


def _split(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []


def _seeds(option: str, text: str | None) -> list[int] | None:
    from layline.bench.grid import MOST_RUNS

    if text is None:
        return None
    try:
        numbers = [int(each) for each in text.split(",")]
    except ValueError:
        raise UserError(
            f"{option} needs a number of seeds such as 5, or a list such as 0,1,7; got {text!r}."
        ) from None
    if "," in text:
        return numbers
    if not 1 <= numbers[0] <= MOST_RUNS:
        raise UserError(f"{option} must be between 1 and {MOST_RUNS:,}, got {text}.")
    return list(range(numbers[0]))


def require_libraries(command: str) -> None:
    """Check before the first run that the libraries for tables and figures are installed."""
    for library in ("pandas", "matplotlib", "plotly", "jinja2"):
        require(library, extra="report", needed_by=command)


def run_cells(
    cells: "Sequence[Cell]", store: "Store", console: "Console", **options: Any
) -> "list[Cell]":
    """Run the cells that have no result yet, show the progress, and list the failures.

    Args:
        cells: The cells of the grid.
        store: The store of their results.
        console: Where the progress is shown.
        options: Options of :func:`layline.bench.runner.run_grid`.

    Returns:
        The cells that failed.
    """
    from layline.bench.runner import GridProgress, run_grid
    from layline.training.display import Reporter, amount

    log = Reporter(console)
    try:
        failed = run_grid(cells, store, GridProgress(console), **options)
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
    from rich.console import Console

    from layline.bench.tables import to_markdown

    width = Console().width
    while len(table.columns) > 1 and len(to_markdown(table).splitlines()[2]) > width:
        table = table.without_last_column()
    typer.echo(to_markdown(table))
