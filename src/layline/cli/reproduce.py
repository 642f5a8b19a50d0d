"""``layline reproduce``: the paper's tables and figures, run again."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layline.cli.bench import Address, AnyVersion, Engine, Jobs, require_libraries, run_cells
from layline.cli.options import SOME_FAILED, ConfigFile, Set, read_settings, settings
from layline.utils.errors import UserError
from layline.utils.validation import check_known, find_known

if TYPE_CHECKING:
    from layline.bench.cells import Cell
    from layline.bench.paper.presets import Preset

ALL = "all"
EXAMPLES = """
Examples:

  layline reproduce --list

  layline reproduce all                                     small stand-ins for the data

  layline reproduce table-norm figure-layouts --epochs 20

  layline reproduce table-historical-adience --preset paper --root historical-color=DIR \
--root adience=DIR

  layline reproduce figure-alpha --source folder --root photos --partitions 3
"""


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Tables and figures, or all; see --list.")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="small: minutes, stand-ins; paper: its data and recipe.")
    ] = "small",
    root: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE=PATH", help="Where the paper's data are; or, of --source."),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="One data set instead of all of the paper's.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Partitions of each data set.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training samples.")] = None,
    config: ConfigFile = None,
    set_: Set = None,
    out: Annotated[Path, typer.Option(help="Folder of the results, new or to go on with.")] = Path(
        "reproduction"
    ),
    jobs: Jobs = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each run.")] = 1,
    engine: Engine = "local",
    address: Address = None,
    any_version: AnyVersion = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Only list what there is.")] = False,
) -> None:
    """Repeat tables and figures of the paper: each in a folder of its own, its numbers beside."""
    require_libraries("layline reproduce")
    if list_ or not names:
        _list_reproductions()
        return
    from rich.console import Console

    from layline.bench.cells import with_content
    from layline.bench.engines import Executor
    from layline.bench.paper import REPRODUCTIONS
    from layline.reports.paper_figures import write_reproduction
    from layline.training.display import Reporter

    trees = [read_settings(config, set_), settings(training__epochs=epochs)]
    chosen = _chosen_names(names)
    wanted = _preset(preset, source, root or [], partitions, trees)
    console = Console(stderr=True)
    named = [(name, cell) for name in chosen for cell in REPRODUCTIONS[name].cells(wanted)]
    known = with_content((replace(cell, threads=threads) for _, cell in named), Reporter(console))
    cells: dict[str, list[Cell]] = {name: [] for name in chosen}
    for (name, _), cell in zip(named, known, strict=True):
        cells[name].append(cell)
    if dry_run:
        _list_cells(cells)
        return
    missing = wanted.missing(data for name in chosen for data in REPRODUCTIONS[name].data)
    if missing:
        raise UserError(missing)
    every_cell = [cell for some in cells.values() for cell in some]
    executor = Executor(engine, jobs, address)
    store, failed = run_cells(every_cell, out, executor, console, any_version=any_version)
    for name in chosen:
        frame, place = store.frame(cells[name]), out / name
        write_reproduction(REPRODUCTIONS[name], wanted, cells[name], frame, store.run_folder, place)
        typer.echo((place / "table.md").read_text(encoding="utf-8"))
        typer.echo(f"{place}/\n")
    if failed:
        raise typer.Exit(SOME_FAILED)


def _list_reproductions() -> None:
    from layline.bench.paper import REPRODUCTIONS
    from layline.bench.paper.presets import PRESETS

    for name, reproduction in REPRODUCTIONS.items():
        typer.echo(f"{name:26}{reproduction.title}")
    typer.echo("")
    for name, preset in PRESETS.items():
        typer.echo(f"--preset {name:17}{preset.summary}")


def _chosen_names(names: Sequence[str]) -> list[str]:
    from layline.bench.paper import REPRODUCTIONS

    for name in names:
        check_known("NAME", name, (*REPRODUCTIONS, ALL))
    return list(REPRODUCTIONS) if ALL in names else list(dict.fromkeys(names))


def _preset(
    name: str,
    source: str | None,
    roots: Sequence[str],
    partitions: int | None,
    trees: Sequence[dict[str, Any]],
) -> "Preset":
    """Put the preset and what the user wants otherwise together."""
    from layline.bench.paper.presets import PRESETS

    preset = find_known("--preset", name, PRESETS)
    if source is not None:
        if len(roots) > 1:
            raise UserError(
                f"--root must be given once with --source, got {len(roots)}: one data set stands "
                "for all"
            )
        preset = preset.with_source(source, Path(roots[0]) if roots else None)
    else:
        preset = preset.with_roots(dict(map(_root, roots)))
    for tree in trees:
        preset = preset.with_settings(tree)
    return preset if partitions is None else preset.with_partitions(partitions)


def _root(text: str) -> tuple[str, Path]:
    source, equals, path = text.partition("=")
    if not equals or not path:
        raise UserError(
            f"--root must be SOURCE=PATH, got {text!r}: write adience=PATH, or add --source folder"
        )
    return source, Path(path)


def _list_cells(cells: "dict[str, list[Cell]]") -> None:
    from layline.bench.paper import REPRODUCTIONS

    for name, some in cells.items():
        for cell in some:
            typer.echo("  ".join([cell.key, name, *cell.labels.values()]))
        for labels, reason in REPRODUCTIONS[name].impossible().items():
            typer.echo("  ".join(["impossible", name, *labels, reason]))
    keys = [cell.key for some in cells.values() for cell in some]
    typer.echo(f"{len(keys)} runs, {len(set(keys))} of them different")
