"""``layline demo``: what a person gets from Layline, in two minutes and without data."""

import os
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from layline.cli.options import INTERRUPTED, ConfigFile, Set, read_settings
from layline.utils.errors import UserError

if TYPE_CHECKING:
    from layline.reports.demo_picture import GradedImage
    from layline.reports.run_record import RunRecord
    from layline.training.api import Run
    from layline.training.config import Config
    from layline.training.display import Reporter

METHODS = ("arc", "classification")  # the default, and what it is compared with
SOURCE = "photo-quality"
EXAMPLES = """
Examples:

  layline demo

  layline demo --out pictures --epochs 4
"""
# By the key of test.json: the title of its column, and whether a lower value is better.
_SHOWN = {
    "accuracy": ("accuracy", False),
    "mae": ("MAE", True),
    "within_one": ("within one", False),
    "qwk": ("QWK", False),
    "rps": ("RPS", True),
    "unimodality_rate": ("unimodal", False),
}
_COLUMNS = 88
_REVIEWED = 2  # samples of each reason
_REASONS = {
    "contradicts its label": "The model contradicts the label:",
    "uncertain": "The model is least certain:",
}


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the runs and the picture.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    config: ConfigFile = None,
    set_: Set = None,
) -> None:
    """Train the default method and a plain classifier on photo quality, and show what you get.

    Both by the default recipe, as layline train does it; only the epochs are fewer, so that it
    takes at most two minutes. A run that is already in the folder is not trained again.
    """
    from rich.console import Console

    from layline.reports.run_record import read_run
    from layline.training.display import Reporter

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("layline demo must run as one process, got several: it is small")
    changes = read_settings(config, set_)
    _check_fixed(changes)
    say, runs, records = Reporter(Console(stderr=True)), {}, {}
    say(
        "Trains the default method and a plain classifier to grade the quality of small photographs"
    )
    for place, method in enumerate(METHODS):
        tree = _settings(method, epochs, seed, changes)
        command = _command(method, tree, config, set_, out / method)
        say(f"{place + 1} of {len(METHODS)}: {command}")
        runs[method] = _train(tree, out / method, say)
        records[method] = read_run(out / method)
    _show_table(records, out)
    _show_more(runs[METHODS[0]], records, out, say)


def _check_fixed(changes: Mapping[str, Any]) -> None:
    """Refuse settings that the demo has of its own."""
    from layline.training.config import setting_at

    for place, own in {"data.source": SOURCE, "head.method": " and ".join(METHODS)}.items():
        if (got := setting_at(changes, place)) is not None:
            raise UserError(
                f"{place} must be left out, got {got}: the demo has {own}; layline train takes any"
            )


def _settings(method: str, epochs: int, seed: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    from layline.training.config import combine

    own = {"data": {"source": SOURCE}, "head": {"method": method}}
    return combine({"training": {"epochs": epochs, "seed": seed}}, changes, own)


def _command(
    method: str,
    tree: Mapping[str, Any],
    config: Path | None,
    set_: Sequence[str] | None,
    folder: Path,
) -> str:
    """Write the command that does the same."""
    words = ["layline", "train", SOURCE, "--method", method]
    words += ["--epochs", str(tree["training"]["epochs"])]
    words += ["--seed", str(tree["training"]["seed"])] if tree["training"]["seed"] else []
    words += ["--config", str(config)] if config else []
    for setting in set_ or ():
        words += ["--set", setting]
    return shlex.join([*words, "--out", str(folder)])


def _train(tree: Mapping[str, Any], path: Path, say: "Reporter") -> "Run":
    """Train a run, go on with it, or take it as it is if it is finished."""
    from layline.training import api
    from layline.training.decisions import decided
    from layline.training.run_folder import RunFolder

    folder = RunFolder(path)
    try:
        if not folder.config.exists():
            return api.train(settings=tree, out=path)
        config = folder.read_config()
        if config != decided(tree, lambda _: None):
            raise UserError(
                f"out must be new, or made with the same options, got {path}: it has a run with "
                "others"
            )
        if folder.test.is_file() and (folder.report.is_file() or not config.report.enabled):
            say("It is there already, and not trained again")
            return api.Run(path)
        return api.train(resume=path)
    except api.Stopped as stop:
        say(f"{stop.how}. The same command goes on")
        raise typer.Exit(INTERRUPTED) from None


# --- what is printed


def _write(text: str = "") -> None:
    """Print a paragraph."""
    typer.echo(textwrap.fill(text, _COLUMNS, break_on_hyphens=False))


def _show_table(records: Mapping[str, "RunRecord"], out: Path) -> None:
    """Print the numbers of both methods, and who is ahead in what."""
    from layline.training.display import amount

    first = next(iter(records.values()))
    numbers, config = first.numbers, first.config
    _write(
        f"Photo quality in {len(first.classes)} levels: {numbers['samples']} test images, decoded "
        f"by the {numbers['decode']}. Recipe {config.recipe}, "
        f"{amount(config.training.epochs, 'epoch')}{_instead(config)}, seed "
        f"{config.training.seed}."
    )
    typer.echo()
    width = max(map(len, records))
    typer.echo(" " * width + "".join(f"{title:>12}" for title, _ in _SHOWN.values()))
    for method, record in records.items():
        row = "".join(f"{record.numbers[key]:12.3f}" for key in _SHOWN)
        typer.echo(f"{method:{width}}{row}")
    typer.echo()
    ahead: dict[str, list[str]] = {method: [] for method in records}
    for key, (title, is_lower) in _SHOWN.items():
        values = {method: record.numbers[key] for method, record in records.items()}
        best = (min if is_lower else max)(values.values())
        leaders = [method for method, value in values.items() if value == best]
        if len(leaders) == 1:
            ahead[leaders[0]].append(title)
    said = "; ".join(f"{method} in {', '.join(names) or 'none'}" for method, names in ahead.items())
    _write(f"Ahead: {said}. {_chance(records, out)}")


def _instead(config: "Config") -> str:
    """Say what the time limit changed of the recipe."""
    from layline.training.recipes import resolve_config

    whole = resolve_config({"recipe": config.recipe, "data": {"source": SOURCE}}).training.epochs
    return (
        f" (the recipe has {whole}: too long for a demo)" if config.training.epochs < whole else ""
    )


def _chance(records: Mapping[str, "RunRecord"], out: Path) -> str:
    """Say which differences may be chance, by the test samples; seeds are another matter."""
    from layline.reports.comparison import verdict
    from layline.training import api

    default, other = METHODS
    (pair,) = api.compare([out / other, out / default]).numbers["pairs"]
    rows = {key: pair["metrics"][key] for key in _SHOWN if key in pair["metrics"]}
    unsure = [_SHOWN[key][0] for key, row in rows.items() if verdict(key, row) == "not sure"]
    if not unsure:
        return "One run each: another seed may turn it."
    return f"One run each, and {', '.join(unsure)} may be chance (95% intervals, layline compare)."


def _show_more(run: "Run", records: Mapping[str, "RunRecord"], out: Path, say: "Reporter") -> None:
    """Print and draw what comes with a grade."""
    record = records[METHODS[0]]
    coverage, images = _first_of_each(run, record)
    typer.echo()
    _write(
        "A plain classifier elsewhere ends here, with a grade and a probability. The rest comes "
        "with any method of Layline, the classifier too; only the arc is the method's own."
    )
    picture = _draw(record, images, coverage, out, say)
    _show_where(record, picture)
    _show_coverage(records, coverage)
    typer.echo()
    typer.echo("The first test image of each level:")
    _show_images(images, record.classes, coverage, "abcdefghijklmnopqrstuvwxyz")
    if record.review:
        _show_review(record, coverage)
    typer.echo()
    page = run.report
    lines = {str(page): "open it: all of this and more on one page"} if page else {}
    lines |= {str(picture): "the picture"} if picture else {}
    lines |= {
        "layline train photos": "your own photographs, a folder for each grade",
        "layline serve runs/photos-arc": "then a page to drop new ones on",
    }
    width = max(map(len, lines))
    for what, why in lines.items():
        typer.echo(f"  {what:{width}}  {why}")


def _show_where(record: "RunRecord", picture: Path | None) -> None:
    """Print the places of the classes on the arc."""
    import numpy as np

    if record.test_layout is None or record.test_layout.proxies is None:
        return
    across, up = record.test_layout.proxies.T
    degrees = np.degrees(np.arctan2(up, across)) % 360
    degrees = degrees[0] - np.where(degrees > degrees[0] + 1, degrees - 360, degrees)
    places = ", ".join(
        f"{name} {at:.0f}°" for name, at in zip(record.classes, degrees, strict=True)
    )
    typer.echo()
    _write(f"Where the classes lie on half a circle, its spacing learned: {places}.")


def _show_coverage(records: Mapping[str, "RunRecord"], coverage: float | None) -> None:
    """Print what the ranges are worth, of both methods."""
    said = []
    for method, record in records.items():
        for each in record.numbers["ranges"]:
            if each["coverage"] == coverage:
                low, high = each["expected"]
                said.append(
                    f"{each['measured']:.1%} of them for {method} ({each['width']:.2f} grades wide)"
                )
    if said:
        typer.echo()
        _write(
            f"How sure: ranges at {coverage:.0%} held the true grade of the test images in "
            f"{', in '.join(said)}. With {each['calibrated_on']} images to calibrate on, chance "
            f"allows {low:.0%} to {high:.0%}."
        )


def _first_of_each(run: "Run", record: "RunRecord") -> tuple[float | None, list["GradedImage"]]:
    """Take the first test image of each level, whatever the model says of it."""
    import numpy as np

    from layline import data
    from layline.data.dataset import Images
    from layline.model.calibration import shown_coverage
    from layline.reports.demo_picture import GradedImage

    calibration = run.model.description.calibration
    coverage = low = high = None
    if record.numbers["ranges"]:
        coverage = shown_coverage(len(calibration.scores))
        low, high = calibration.ranges(record.proba, record.predicted, coverage)
    options = record.config.data
    dataset = data.read(options.source, options.root, options.partition, **options.options)
    assert isinstance(dataset.inputs, Images)  # as the source has
    found = []
    for rank in range(len(record.classes)):
        place = int(np.flatnonzero(record.ranks == rank)[0])
        grade = int(record.predicted[place])
        ends = None if low is None or high is None else (int(low[place]), int(high[place]))
        pixels = dataset.inputs.load(int(dataset.splits.test[place]))
        share = float(record.proba[place, grade])
        name = record.names[place]
        found.append(GradedImage(name, place, rank, grade, share, ends, pixels))
    return coverage, found


def _show_images(
    images: Sequence["GradedImage"],
    classes: Sequence[str],
    coverage: float | None,
    names: Sequence[str] | None = None,
) -> None:
    """Print a line for each image."""
    first = [image.name for image in images] if names is None else list(names[: len(images)])
    ranges = ["–" if image.ends is None else _range(image.ends, classes) for image in images]
    head = "range" if coverage is None else f"range at {coverage:.0%}"
    wide = max(map(len, classes))
    columns = max(map(len, first)), max(5, wide), 11, max(len(head), 2 * wide + 3), wide

    def line(*cells: str) -> None:
        typer.echo(
            "  " + "  ".join(f"{c:{w}}" for c, w in zip(cells, columns, strict=True)).rstrip()
        )

    line("", "grade", "probability", head, "truth")
    for name, image, ends in zip(first, images, ranges, strict=True):
        share = f"{image.probability:.2f}"
        line(name, classes[image.grade], share, ends, classes[image.true])


def _range(ends: tuple[int, int], classes: Sequence[str]) -> str:
    low, high = (classes[end] for end in ends)
    return low if low == high else f"{low} – {high}"


def _show_review(record: "RunRecord", coverage: float | None) -> None:
    """Print the cases that a person should see first, a few of each reason."""
    from layline.reports.demo_picture import GradedImage

    listed = record.review or []
    typer.echo()
    typer.echo("What a person should see first:")
    for reason, sentence in _REASONS.items():
        images = [
            GradedImage(
                each.name,
                -1,
                each.true,
                each.predicted,
                each.probabilities[each.predicted],
                each.ends,
            )
            for each in listed
            if each.reason == reason
        ][:_REVIEWED]
        if images:
            typer.echo(sentence)
            _show_images(images, record.classes, coverage)


def _draw(
    record: "RunRecord",
    images: Sequence["GradedImage"],
    coverage: float | None,
    out: Path,
    say: "Reporter",
) -> Path | None:
    """Draw the picture, if there is a layout and what it takes to draw."""
    if record.test_layout is None:  # which --set report.enabled=false leaves out
        return None
    try:
        from layline.reports.demo_picture import demo_picture
        from layline.reports.printed_figures import save_figure

        return save_figure(
            demo_picture(record.test_layout, record.classes, images, coverage), out / "demo.png"
        )
    except ImportError as error:
        say(f"No picture: {error}")
        return None
