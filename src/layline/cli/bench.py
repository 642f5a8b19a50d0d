"""``layline bench``: many methods on many data sets, with seeds and statistics."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layline import data
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

    from layline.bench.cells import Cell
    from layline.bench.engines import Executor
    from layline.bench.grid import Grid
    from layline.bench.store import Store
    from layline.bench.tables import Table
    from layline.training.display import Reporter

EXAMPLES = """
Examples:

  layline bench photo-quality --methods hard-linear,classification --seeds 3

  layline bench ratings.csv --label rank --decode mode,median

  layline bench photo-quality --recipe paper,modern    what a recipe changes

  layline bench ratings.csv --competitor "sklearn.ensemble:HistGradientBoostingClassifier"

  layline bench --grid grid.toml --out results         a grid from a file, see docs/bench.md

  layline bench --out results                          go on with a grid that was stopped

  layline bench --out results --merge other            take what another machine has run
"""
_AROUND_TABLE, _BETWEEN_COLUMNS = 3, 3  # characters
Engine = Annotated[str, typer.Option(help="local, dask or ray.")]
Address = Annotated[
    str | None, typer.Option(help="Of the cluster's scheduler; a local one if not given.")
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="Runs at once; as many as fit, if not given.")
]
AnyVersion = Annotated[
    bool, typer.Option("--any-version", help="Keep results of other versions of the code.")
]


def bench(
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Folders, CSV or npz files, or names of layline data list."),
    ] = None,
    root: Root = None,
    classes: Classes = None,
    label: Label = None,
    group: Group = None,
    group_by: GroupBy = None,
    methods: Annotated[
        str | None, typer.Option(help="Names with commas, or all; see layline methods.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="How many, or which, with commas: 0,1,7.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Names with commas; more than one are compared.")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="Names with commas.")] = None,
    decode: Annotated[
        str | None,
        typer.Option(help="mode,median,mean: the first chooses the epoch. [default: the recipe's]"),
    ] = None,
    tune: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SECTION.KEY=[…]", help="Values to try for every method; validation chooses."
        ),
    ] = None,
    tune_seeds: Annotated[
        str | None,
        typer.Option(
            help="Seeds that choose the values for all, as --seeds. [default: each its own]"
        ),
    ] = None,
    competitor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:NAME(…)",
            help="Of another library, on the same table or frozen features; may be repeated.",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            help="The method to compare the others with. [default: classification, or the first]"
        ),
    ] = None,
    grid: Annotated[Path | None, typer.Option(help="TOML file that describes all of it.")] = None,
    data_folder: Annotated[
        Path | None, typer.Option(help="Where the roots of the grid's file are.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Data sets of the grid's file, names with commas; else all.")
    ] = None,
    config: ConfigFile = None,
    set_: Set = None,
    out: Annotated[Path, typer.Option(help="Folder of the results, new or to go on with.")] = Path(
        "bench"
    ),
    jobs: Jobs = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of each run.")] = None,
    engine: Engine = "local",
    address: Address = None,
    any_version: AnyVersion = False,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the weights of every run.")
    ] = False,
    merge: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Results from elsewhere: take its finished runs first."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs.")] = False,
    verify: Verify = None,
    plugins: Plugins = None,
) -> None:
    """Compare methods: train every combination, once each, and say what the results say."""
    require_libraries("layline bench")
    from rich.console import Console

    from layline.bench.engines import Executor
    from layline.bench.grid import parse_tune, read_grid
    from layline.bench.results import (
        chosen_cells,
        differing_environments,
        leaderboard,
        write_grid,
        write_results,
        write_runs,
    )
    from layline.bench.store import Store
    from layline.reports.bench import write_bench_figures, write_bench_report
    from layline.training.display import Reporter

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
        "competitors": competitor or [],
        "plugins": [resolve_reference(each) for each in plugins or ()],
        "threads": threads,
    }
    given = {key: value for key, value in given.items() if value}
    if grid is None and "data" not in given and (out / "grid.toml").exists():
        grid = out / "grid.toml"
    wanted = read_grid(
        grid, data_folder, given, read_settings(config, set_), parse_tune(tune or [])
    )
    whole = wanted
    if only:
        wanted = wanted.only(_split(only))
    console = Console(stderr=True)
    load_plugins(wanted.plugins)
    if verify:  # once, so that each run may trust what is known then
        for each in wanted.data:
            data.content_digest(each.source, each.root, each.options, verify=True)
    cells = wanted.cells(Reporter(console))
    if dry_run:
        _list_cells(cells, wanted)
        return
    executor = Executor(engine, jobs, address)
    executor.check()
    with Store(out).alone():
        write_grid(whole, out)  # now: a grid that is killed goes on from it
    _merge(out, merge or [], wanted.read_by(), Reporter(console))
    options = {"any_version": any_version, "keep_models": keep_models}
    try:
        if wanted.tune_seeds:
            store, _ = run_cells(wanted.choosing(cells), out, executor, console, **options)
            cells = chosen_cells(cells, store, wanted.tune_seeds)
        store, failed = run_cells(cells, out, executor, console, **options)
    except typer.Exit:  # it was stopped
        write_runs(whole, cells, Store(out, any_version))
        raise
    frame = write_results(wanted, cells, store, part_of=whole)
    shown = [each.name for each in wanted.data]
    write_bench_figures(out, shown)
    write_bench_report(out, out / "report.html", shown)
    for sentence in differing_environments(store, cells):
        Reporter(console)(sentence)
    show_table(leaderboard(frame, wanted.read_by()), Console())
    Reporter(console)(f"Tables, figures and report.html are in {out}")
    if failed:
        raise typer.Exit(SOME_FAILED)


def _data_set(source: str, root: Path | None, options: dict[str, str | None]) -> dict[str, Any]:
    name, root, sentence = data.find_source(source, root, data.names())
    if sentence:
        typer.echo(sentence, err=True)
    entry: dict[str, Any] = {"name": name, "source": name}
    wanted = {option: value for option, value in options.items() if value is not None}
    if wanted:
        entry["options"] = wanted
    return entry if root is None else {**entry, "name": root.resolve().stem, "root": root}


def _list_cells(cells: "Sequence[Cell]", grid: "Grid") -> None:
    """List the runs; which settings other seeds take is known once they are chosen."""
    from layline.training.display import amount

    first = grid.choosing(cells)
    for cell in first:
        typer.echo("  ".join([cell.key, *cell.labels.values()]))
    typer.echo(amount(len({cell.key for cell in first}), "run"))
    if len(first) < len(cells):
        without = {tuple(v for k, v in cell.labels.items() if k != "setting") for cell in cells}
        chosen = {tuple(v for k, v in cell.labels.items() if k != "setting") for cell in first}
        more = amount(len(without - chosen), "run")
        typer.echo(f"{more} of the other seeds follow, each with the setting that is chosen")


def _split(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []


def _seeds(option: str, text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        numbers = [int(each) for each in text.split(",")]
    except ValueError:
        raise UserError(
            f"{option} must be a number of seeds or a list of them, got {text!r}: write 5 or 0,1,7"
        ) from None
    if "," in text:
        return numbers
    if numbers[0] < 1:
        raise UserError(f"{option} must be at least one seed, got {text}: the seed 0 alone is 1")
    return list(range(numbers[0]))


def _merge(out: Path, others: Sequence[Path], decodings: Sequence[str], say: "Reporter") -> None:
    """Take the runs of other folders, and those of this one if its cells are gone."""
    from layline.bench.results import RESULTS, holds_runs, read_outcomes
    from layline.bench.store import Store
    from layline.training.display import amount

    store = Store(out)
    is_published = not store.has_cells and holds_runs(out)
    for other in [out, *others] if is_published else others:
        if Store(other).has_cells:
            taken = store.merge(other)
        else:
            found = read_outcomes(other)
            whole = [each for each in found if each.error or set(decodings) <= set(each.numbers)]
            taken = store.take(whole)
            if left := len(found) - len(whole):
                by = ", ".join(decodings)
                say(f"{amount(left, 'run')} of {other / RESULTS} left out: not read by all of {by}")
        say(f"{amount(taken, 'run')} taken from {other}")


def require_libraries(command: str) -> None:
    """Say before the first run, not after the last, what tables and figures need."""
    for library in ("pandas", "matplotlib", "plotly", "jinja2"):
        require(library, extra="report", needed_by=command)


def run_cells(
    cells: "Sequence[Cell]",
    out: Path,
    executor: "Executor",
    console: "Console",
    *,
    any_version: bool = False,
    keep_models: bool = False,
) -> "tuple[Store, list[Cell]]":
    """Run the cells that have no result yet, show how it goes, and say what failed.

    Args:
        cells: Of the grid.
        out: Folder of the results.
        executor: Where to run.
        console: Where to show it.
        any_version: Keep results of other versions of the code.
        keep_models: Keep the weights of every run.

    Returns:
        The store with the results, and the cells that failed.
    """
    from layline.bench.runner import GridProgress, run_grid
    from layline.bench.store import Store
    from layline.training.display import Reporter, amount

    store, say = Store(out, any_version), Reporter(console)
    try:
        failed = run_grid(cells, store, GridProgress(console), executor, keep_models=keep_models)
    except KeyboardInterrupt:
        done = sum(store.is_done(cell) for cell in cells)
        are = "is" if len(cells) == 1 else "are"
        runs = amount(len(cells), "run")
        say(f"Stopped; {done} of {runs} {are} done. The same command goes on.")
        raise typer.Exit(INTERRUPTED) from None
    if failed:
        them = "it" if len(failed) == 1 else "them"
        say(f"{amount(len(failed), 'run')} failed; the same command tries {them} again:")
    for cell in failed:
        outcome = store.find(cell)
        say(f"  {cell.name}: {outcome.error if outcome else 'not run'}")
    return store, failed


def show_table(table: "Table", console: "Console") -> None:
    """Print a table; the last columns are left out where the terminal is too narrow for them."""
    from rich import box
    from rich.table import Table as Shown
    from rich.text import Text

    from layline.bench.tables import entry_remark, entry_text

    texts = [
        [
            f"{entry_text(e, c)} {entry_remark(e, c)}".rstrip()
            for e, c in zip(entries, table.columns, strict=True)
        ]
        for entries in table.entries
    ]
    left = console.width - max(map(len, [table.corner, *table.rows])) - _AROUND_TABLE
    shown = Shown(box=box.SIMPLE_HEAD, title=table.caption, title_justify="left", pad_edge=False)
    shown.add_column(table.corner, no_wrap=True)
    fits = 0
    for column, *fields in zip(table.columns, *texts, strict=True):
        width = max(map(len, [*fields, *column.title.split()]))
        left -= width + _BETWEEN_COLUMNS
        if left < 0:
            break
        shown.add_column(column.title, justify="right", min_width=width)
        fits += 1
    for label, fields, entries in zip(table.rows, texts, table.entries, strict=True):
        marked = [
            Text(text, style="bold" if entry.is_best else "")
            for text, entry in zip(fields, entries, strict=True)
        ]
        shown.add_row(Text(label), *marked[:fits])
    console.print(shown)
