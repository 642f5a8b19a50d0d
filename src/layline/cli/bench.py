"""``layline bench``: many methods on many data sets, with seeds and statistics."""

from pathlib import Path
from typing import Annotated, Any

import typer

from layline.amounts import amount
from layline.cli.errors import explained
from layline.cli.grids import require_libraries
from layline.cli.options import SOME_FAILED, ConfigFile, Root, Set, read_settings

EXAMPLES = """
Examples:

  layline bench photo-quality --methods hard-linear,classification --seeds 3

  layline bench table --root ratings.csv --set data.options.label=rank --decode mode,median

  layline bench --grid grid.toml --out results         a grid from a file, see docs/bench.md

  layline bench --out results                          go on with a grid that was stopped
"""
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
        list[str] | None, typer.Argument(help="Where samples come from, see layline data list.")
    ] = None,
    root: Root = None,
    methods: Annotated[
        str | None, typer.Option(help="Names with commas, or all; see layline methods.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="How many, or which, with commas: 0,1,7.")
    ] = None,
    features: Annotated[str | None, typer.Option(help="Names with commas.")] = None,
    decode: Annotated[
        str | None, typer.Option(help="mode,median,mean: the first chooses the epoch.")
    ] = None,
    tune: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SECTION.KEY=[…]", help="Values to try for every method; validation chooses."
        ),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="The method to compare the others with.")
    ] = None,
    grid: Annotated[Path | None, typer.Option(help="TOML file that describes all of it.")] = None,
    data_folder: Annotated[
        Path | None, typer.Option(help="Where the roots of the grid's file are.")
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs.")] = False,
) -> None:
    """Compare methods: train every combination, once each, and say what the results say."""
    with explained():
        require_libraries("layline bench")
        from layline.experiments.engines import Executor

        given: dict[str, Any] = {
            "data": [_data_set(source, root) for source in sources or []],
            "methods": _split(methods),
            "seeds": _seeds(seeds),
            "features": _split(features),
            "decodings": _split(decode),
            "reference": reference,
            "threads": threads,
        }
        given = {key: value for key, value in given.items() if value}
        wanted = _grid(given, grid, data_folder, read_settings(config, set_), tune or [], out)
        _run(wanted, out, Executor(engine, jobs, address), any_version, keep_models, dry_run)


def _data_set(source: str, root: Path | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": source, "source": source}
    return entry if root is None else {**entry, "name": root.resolve().stem, "root": root}


def _split(text: str | None) -> list[str]:
    return [name.strip() for name in text.split(",")] if text else []


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        numbers = [int(each) for each in text.split(",")]
    except ValueError:
        raise ValueError(
            f"--seeds must be a number of seeds or a list of them, got {text!r}: write 5 or 0,1,7"
        ) from None
    if "," in text:
        return numbers
    if numbers[0] < 1:
        raise ValueError(f"--seeds must be at least one seed, got {text}: the seed 0 alone is 1")
    return list(range(numbers[0]))


def _grid(
    given: dict[str, Any],
    file: Path | None,
    data_folder: Path | None,
    settings: dict[str, Any],
    tune: list[str],
    out: Path,
) -> Any:
    """Put the file of the grid and the options of the command together."""
    from layline.experiments.grid import parse_tune, read_grid

    before = out / "grid.toml"
    if file is None and "data" not in given and before.exists():
        file = before
    return read_grid(file, data_folder, given, settings, parse_tune(tune))


def _run(
    grid: Any, out: Path, place: Any, any_version: bool, keep_models: bool, dry_run: bool
) -> None:
    from rich.console import Console

    from layline.cli.grids import run_cells, show
    from layline.experiments.results import leaderboard, write_grid, write_results
    from layline.reports.grid import write_grid_figures, write_grid_report
    from layline.training.reporter import Reporter

    console = Console(stderr=True)
    cells = grid.cells()
    if dry_run:
        for cell in cells:
            typer.echo("  ".join([cell.key, *cell.labels.values()]))
        typer.echo(amount(len({cell.key for cell in cells}), "run"))
        return
    write_grid(grid, out)  # now: a grid that is killed goes on from it
    store, failed = run_cells(
        cells, out, place, console, any_version=any_version, keep_models=keep_models
    )
    frame = write_results(grid, cells, store)
    write_grid_figures(out)
    write_grid_report(out, out / "report.html")
    show(leaderboard(frame, grid.decodings[0]), Console())
    Reporter(console)(f"Tables, figures and report.html are in {out}")
    if failed:
        raise typer.Exit(SOME_FAILED)
