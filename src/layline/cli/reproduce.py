"""``layline reproduce``: the tables and figures of the paper."""

from pathlib import Path
from typing import Annotated

import typer

from layline.cli.bench import Dask, DryRun, Jobs, Latex, Out, Rerun, require_libraries, run_cells
from layline.cli.options import SOME_FAILED, ConfigFile, Set, read_settings
from layline.utils.validation import UserError, check_known, find_known

ALL = "all"
EXAMPLES = """
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
        str, typer.Option(help="small: stand-ins, minutes; paper: its data and recipe.")
    ] = "small",
    root: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE=PATH", help="Folder of the paper's data; with --source, only a path."
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Data source to use in place of all of the paper's.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Most partitions of a data set.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Number of epochs.")] = None,
    config: ConfigFile = None,
    set_: Set = None,
    out: Out = Path("reproduction"),
    jobs: Jobs = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each run.")] = 1,
    dask: Dask = None,
    rerun: Rerun = False,
    latex: Latex = False,
    dry_run: DryRun = False,
    list_: Annotated[bool, typer.Option("--list", help="List the names and exit.")] = False,
) -> None:
    """Reproduce tables and figures of the paper, with the paper's numbers next to ours."""
    require_libraries("layline reproduce")
    from rich.console import Console

    from layline.bench.paper import load_presets, load_reproductions
    from layline.bench.store import Store
    from layline.reports.paper_figures import write_reproduction
    from layline.training.config import combine

    known = load_reproductions()
    if list_ or not names:
        for name, each in known.items():
            typer.echo(f"{name:26}{each.title}")
        typer.echo("")
        for name, one in load_presets().items():
            typer.echo(f"--preset {name:17}{one.summary}")
        return
    for name in names:
        check_known("NAME", name, (*known, ALL))
    chosen = {name: known[name] for name in (known if ALL in names else dict.fromkeys(names))}
    if source is not None and root and len(root) > 1:
        raise UserError("With --source, only one --root is possible.")
    roots = dict(_root(text, source) for text in root or [])
    tree = combine(read_settings(config, set_), {"training": {"epochs": epochs}} if epochs else {})
    used = find_known("--preset", preset, load_presets()).adapt(source, roots, partitions, tree)
    cells = {name: each.cells(used, threads) for name, each in chosen.items()}
    every = [cell for some in cells.values() for cell in some]
    if dry_run:
        for name, some in cells.items():
            for cell in some:
                typer.echo("  ".join([cell.key, name, *cell.labels.values()]))
        different = len({cell.key for cell in every})
        typer.echo(f"{len(every)} runs, {different} of them different")
        return
    used.check_roots(name for each in chosen.values() for name in each.data_sets())
    store = Store(out)
    store.check_folder(every)
    options = {"jobs": jobs, "dask": dask, "rerun": rerun}
    failed = run_cells(every, store, Console(stderr=True), **options)
    for name, each in chosen.items():
        write_reproduction(each, used, cells[name], store, out / name, latex)
        typer.echo((out / name / "table.md").read_text(encoding="utf-8"))
        typer.echo(f"{out / name}/\n")
    if failed:
        raise typer.Exit(SOME_FAILED)


def _root(text: str, source: str | None) -> tuple[str, Path]:
    name, equals, path = text.partition("=") if source is None else (source, "=", text)
    if not equals or not path:
        raise UserError(f"Write --root SOURCE=PATH, such as adience=PATH; got {text!r}.")
    return name, Path(path)
