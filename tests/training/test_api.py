"""Training in one call from Python."""

import errno
import inspect
import json

import numpy as np
import pytest
import typer
from PIL import Image

import layline
from layline.cli import app
from layline.training import run as runs
from layline.training.config import SETTINGS, parse_minutes, tree_of
from layline.training.recipes import resolve_config
from layline.training.trainer import Interrupted
from layline.utils.validation import UserError

SMALL = {"backbone": "convnet", "dim": 4, "epochs": 2, "workers": 0, "batch_size": 8}
CHANNELS = {"backbone": {"options": {"channels": 8}}}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("data") / "photos"
    rng = np.random.default_rng(0)
    for rank, name in enumerate(("poor", "fair", "good")):
        (root / name).mkdir(parents=True)
        for i in range(10):
            pixels = rng.normal(60 + 70 * rank, 20, (16, 16, 3)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "run"
    return layline.train(photos, **SMALL, settings=CHANNELS, out=out, verbose=False)


def test_a_run_has_its_model_its_numbers_and_its_report(run, photos):
    assert run.model.classes == ("poor", "fair", "good")
    assert run.model.predict_proba(photos / "poor" / "0.png").shape == (1, 3)
    assert run.metrics == json.loads((run.folder / "test.json").read_text())
    assert [record["epoch"] for record in run.history] == [1, 2]
    assert run.report == run.folder / "report.html"
    assert layline.Run(run.folder).metrics == run.metrics
    assert repr(run) == f"Run({str(run.folder)!r})"


def test_a_report_that_cannot_be_written_does_not_hide_the_results(
    photos, tmp_path, monkeypatch, capsys
):
    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("layline.reports.run.write_run_report", no_room)
    monkeypatch.setattr("layline.training.report_data._write_thumbnail", no_room)
    run = layline.train(photos, **SMALL, settings=CHANNELS, out=tmp_path / "run")
    assert run.metrics["samples"] == 6
    assert run.report is None
    assert "report.html was not written" in capsys.readouterr().err


def test_the_folder_of_a_run_is_called_after_the_path(photos, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "")  # an empty number of processes is one process
    monkeypatch.setenv("RANK", "")
    monkeypatch.chdir(tmp_path)
    run = layline.train(photos, **SMALL, settings=CHANNELS, method="coral", report=False)
    assert str(run.folder) == "runs/photos-coral"
    assert str(photos) in capsys.readouterr().err
    assert run.report is None


def test_arguments_and_options_are_the_settings():
    command = typer.main.get_command(app).commands["train"]
    options = {each.name for each in command.get_params(typer.Context(command))}
    settings = {name for name, setting in SETTINGS.items() if setting.panel is not None}
    assert settings <= options
    assert options - settings == {"source", "out", "resume", "config", "set_", "help"}
    arguments = inspect.signature(layline.train).parameters
    assert set(arguments) == {*SETTINGS, "source", "settings", "out", "resume", "verbose"}
    for name, setting in SETTINGS.items():
        assert f"{name}: {setting.help}" in " ".join(layline.train.__doc__.split())


@pytest.mark.parametrize("source", [np.zeros((3, 2)), [1, 2], 3])
def test_only_paths_and_names_are_sources(source):
    with pytest.raises(UserError, match=r"source must be a path .*OrdinalClassifier"):
        layline.train(source)


def test_arguments_become_settings_above_those_given(photos, tmp_path, capsys):
    given = CHANNELS | {"training": {"learning_rate": 0.5, "weight_decay": 0.25}}
    more = {"lr": 0.01, "size": 16, "class_weight": "effective", "recipe": "paper"}
    out = tmp_path / "run"
    made = layline.train(photos, **SMALL | more, settings=given, out=out, verbose=False)
    assert capsys.readouterr() == ("", "")
    config = runs.RunFolder(made.folder).read_config()
    training = config.training
    assert (training.learning_rate, training.weight_decay) == (0.01, 0.25)
    assert (config.recipe, config.data.size, training.class_weight) == ("paper", 16, "effective")
    assert made.metrics["decode"] == "mode"  # as the paper's recipe has it


@pytest.mark.parametrize(
    ("metric", "decode"), [("mae", "median"), ("accuracy", "mode"), ("qwk", "mean")]
)
def test_the_metric_selects_the_decoding(metric, decode):
    config = resolve_config(tree_of({"metric": metric}), {"data": {"source": "photo-quality"}})
    assert config.training.decoding == decode


def test_a_stop_is_a_keyboard_interrupt_that_says_how_to_resume(photos, tmp_path, monkeypatch):
    def stop(settings, folder, console):
        folder.config.parent.mkdir()
        folder.config.touch()
        raise Interrupted("Stopped in epoch 2 at step 0")

    monkeypatch.setattr(runs, "train_run", stop)
    with pytest.raises(KeyboardInterrupt) as stopped:
        layline.train(photos, **SMALL, out=tmp_path / "run", verbose=False)
    assert str(stopped.value) == (
        "Stopped in epoch 2 at step 0; the state is saved. Resume with "
        f"layline.train(resume={str(tmp_path / 'run')!r})"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "A data source is needed"),
        ({"source": "no/such"}, "no/such"),
        ({"source": "photo-quality", "epoks": 3}, "'epoks'.*epochs"),
        ({"source": "photo-quality", "metric": "f1"}, "training.metric: .*'f1'"),
        ({"source": "photo-quality", "settings": {"oops": 1}}, "oops: unknown setting"),
        ({"source": "photo-quality", "size": 10**6}, "data.size: .*less than or equal"),
        ({"source": "photo-quality", "resume": "run"}, "resume takes neither source nor out"),
    ],
)
def test_a_mistake_is_an_ordinary_exception(arguments, message, tmp_path):
    with pytest.raises(UserError, match=message):
        layline.train(**arguments, out=tmp_path / "run", verbose=False)
    assert not (tmp_path / "run").exists()


def test_a_budget_is_a_time():
    texts = {"10min": 10, "90s": 1.5, "0.5h": 30, "1h30min": 90, "2 hours": 120, 12: 12}
    assert [parse_minutes(text) for text in texts] == pytest.approx([*texts.values()])
    for text in ("", "soon", "10x", "-5min", "0", "1h30", "1,5h", "nan"):
        with pytest.raises(UserError, match="budget must be a time such as 90s, 10min or 1h, got"):
            parse_minutes(text)


def test_evaluate_from_python_has_the_options_of_the_command(run, photos, tmp_path, capsys):
    command = typer.main.get_command(app).commands["evaluate"]
    flags = {parameter.name for parameter in command.params} - {"help", "config", "set_", "as_json"}
    arguments = set(inspect.signature(layline.evaluate).parameters)
    assert arguments == flags | {"settings", "verbose"}
    own = layline.evaluate(run.folder, verbose=False)
    assert (own.folder, own.report, own.predictions) == (None, None, None)
    assert own.metrics["mae"] == run.metrics["mae"]
    out = tmp_path / "out"
    found = layline.evaluate(run.folder, part="all", out=out, verbose=False)
    assert capsys.readouterr() == ("", "")
    assert found.metrics["samples"] == 30
    assert (found.folder, found.report) == (out, out / "report.html")
    assert found.predictions.is_file()


def test_compare_from_python_has_the_options_of_the_command(run):
    command = typer.main.get_command(app).commands["compare"]
    flags = {parameter.name for parameter in command.params} - {"help", "as_json"}
    assert set(inspect.signature(layline.compare).parameters) == flags
    found = layline.compare([run.folder, run.folder], draws=20)
    assert found.report is None
    assert found.numbers["pairs"][0]["metrics"]["mae"]["difference"] == 0
