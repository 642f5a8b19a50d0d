"""Going on from a trained model: it begins where that ended, and is a run of its own."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import layline
from layline.bench.cells import Cell
from layline.data.file_digests import digest_file
from layline.data.sources.photo_quality import read_photo_quality
from layline.training.config import StartConfig
from layline.training.run import _RunHooks
from layline.training.run_folder import RunFolder

SMALL = ("--epochs", 2, "--no-report")


@pytest.fixture(scope="module")
def first(command, table, tmp_path_factory):
    """The run that others go on from."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    result = command("train", table, "--dim", 4, *SMALL, "--epochs", 4, "--out", folder)
    assert result.exit_code == 0
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Rows from elsewhere, without the highest class, in another order of columns."""
    rng = np.random.default_rng(5)
    x = rng.normal(0.2, 1.1, size=(90, 3))
    labels = np.digitize(x[:, 0] + 0.3 * x[:, 1], [-1, 0.2])
    path = tmp_path_factory.mktemp("table") / "other.csv"
    lines = [f"{k},{c!r},{a!r},{b!r}" for (a, b, c), k in zip(x.tolist(), labels, strict=True)]
    path.write_text("\n".join(["label,c,a,b", *lines]))
    return path


@pytest.fixture(scope="module")
def second(command, first, other, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "second"
    result = command("train", other, "--init-from", first, *SMALL, "--out", folder)
    assert result.exit_code == 0
    return folder


def sentence(result):
    assert result.exit_code == 1
    return result.stderr.splitlines()[-1]


def test_it_has_the_classes_and_the_columns_of_the_first(first, second):
    models = [layline.load(folder) for folder in (first, second)]
    assert models[0].spec.inputs == models[1].spec.inputs
    assert models[0].classes == models[1].classes == ("0", "1", "2", "3")
    assert torch.equal(models[0].features.scale, models[1].features.scale)
    config = RunFolder(second).read_config()
    assert (config.head.method, config.head.dim, config.backbone.weights) == ("arc", 4, "none")


def test_its_rates_are_a_part_of_those_of_the_recipe_and_named_ones_are_taken(
    command, first, second, other, tmp_path
):
    before, after = (RunFolder(folder).read_config().training for folder in (first, second))
    for rate in ("learning_rate", "head_learning_rate"):
        assert getattr(after, rate) == pytest.approx(0.1 * getattr(before, rate))
    named = ("--lr", 0.5, "--set", "init_from.rate=0.5", "--out", tmp_path / "run")
    assert command("train", other, "--init-from", first, *SMALL, *named).exit_code == 0
    training = RunFolder(tmp_path / "run").read_config().training
    assert training.learning_rate == 0.5
    assert training.head_learning_rate == 0.5 * before.head_learning_rate


def test_where_nothing_is_learned_it_is_the_first_model(command, first, other, tmp_path):
    folder = tmp_path / "run"
    still = ("--lr", 1e-30, "--head-lr", 1e-30, "--no-calibrate", "--out", folder)
    assert command("train", other, "--init-from", first, *SMALL, *still).exit_code == 0
    tensors = [load_file(run / "best.safetensors") for run in (first, folder)]
    assert tensors[0].keys() == tensors[1].keys()
    assert all(torch.equal(tensors[0][name], tensors[1][name]) for name in tensors[0])


def test_it_says_what_it_came_from(first, second):
    digest = digest_file(first / "best.safetensors")
    environment = json.loads((second / "environment.json").read_text())
    assert environment["start"]["digest"] == digest
    assert environment["start"]["model"] == str(first / "best.safetensors")
    assert digest_file(second / "init_from.safetensors") == digest
    assert RunFolder(second).read_config().init_from.digest == digest


def test_its_configuration_repeats_it(command, second, tmp_path):
    arguments = ("--config", second / "config.toml", "--out", tmp_path / "run")
    assert command("train", *arguments).exit_code == 0
    for name in ("best.safetensors", "test.json", "predictions.csv", "config.toml"):
        assert (tmp_path / "run" / name).read_bytes() == (second / name).read_bytes()


def test_it_goes_on_bit_for_bit_without_the_first_run(
    command, first, second, other, tmp_path, monkeypatch
):
    shutil.copytree(first, tmp_path / "first")
    folder = tmp_path / "run"
    with monkeypatch.context() as context:
        context.setattr(_RunHooks, "stop_is_wanted", lambda hooks: True)
        arguments = (other, "--init-from", tmp_path / "first", *SMALL, "--out", folder)
        assert command("train", *arguments).exit_code == 130
    assert not (folder / "test.json").exists()
    shutil.rmtree(tmp_path / "first")
    assert command("train", "--resume", folder).exit_code == 0
    for name in ("best.safetensors", "history.jsonl", "test.json", "predictions.csv"):
        assert (folder / name).read_bytes() == (second / name).read_bytes()
    assert layline.evaluate(folder, verbose=False).metrics["samples"] == 18


def test_a_frozen_body_stays_as_it_was(command, first, other, tmp_path):
    arguments = (first / "best.safetensors", "--freeze", *SMALL, "--out", tmp_path / "run")
    assert command("train", other, "--init-from", *arguments).exit_code == 0
    tensors = [load_file(run / "best.safetensors") for run in (first, tmp_path / "run")]
    moved = {name for name in tensors[0] if not torch.equal(tensors[0][name], tensors[1][name])}
    assert moved
    assert all(name.startswith(("backbone.last", "head.")) for name in moved)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "coral"), "--method must be left out with --from, got coral"),
        (("--dim", 8), "--dim must be left out with --from, got 8"),
        (("--backbone", "convnet"), "--backbone must be left out with --from, got convnet"),
        (("--weights", "bundled"), "--weights must be left out with --from, got bundled"),
        (("--classes", "3,2,1,0"), "classes must be left out with --from, got 3, 2, 1, 0"),
        (("--set", "backbone.options.hidden=[4]"), "backbone.options must be left out"),
    ],
)
def test_what_contradicts_the_model_is_refused(cli, first, other, arguments, message):
    assert message in sentence(cli("train", other, "--init-from", first, *arguments))


@pytest.fixture(scope="module")
def cli():
    """Run the command in this process, mistakes as its user sees them."""
    from typer.testing import CliRunner

    from layline.cli import app

    return lambda *arguments: CliRunner().invoke(app, [*map(str, arguments)])


def test_data_that_do_not_fit_are_refused(cli, first, other, photographs, tmp_path):
    text = other.read_text()
    path = tmp_path / "data.csv"
    path.write_text(text.replace("label,c,a,b", "label,c,a,d"))
    found = sentence(cli("train", path, "--init-from", first, *SMALL))
    assert "must have the column 'b'" in found
    assert found.endswith("the model was trained with it")
    path.write_text(text + "\nseven,1,2,3")
    found = sentence(cli("train", path, "--init-from", first, *SMALL))
    assert "classes of the model, 0, 1, 2, 3, got seven" in found
    skipped = ("--skip-unknown", *SMALL, "--out", tmp_path / "run")
    assert cli("train", path, "--init-from", first, *skipped).exit_code == 0
    found = sentence(cli("train", photographs, "--init-from", first, *SMALL))
    assert "the model takes nothing else" in found


def test_a_start_that_is_none_or_has_changed_is_refused(cli, second, other, tmp_path):
    assert "got nowhere: it is not there" in sentence(cli("train", other, "--init-from", "nowhere"))
    found = sentence(cli("train", other, "--init-from", tmp_path))
    assert found.endswith("it has no best.safetensors")
    assert "must come with --from" in sentence(cli("train", other, "--skip-unknown"))
    text = (second / "config.toml").read_text()
    digest = RunFolder(second).read_config().init_from.digest
    (tmp_path / "config.toml").write_text(text.replace(digest, "0" * len(digest)))
    found = sentence(cli("train", "--config", tmp_path / "config.toml"))
    assert "init_from.model must be as it was" in found
    shutil.copytree(second, tmp_path / "run")
    (tmp_path / "run" / "init_from.safetensors").write_bytes(b"others")
    found = sentence(cli("train", "--resume", tmp_path / "run"))
    assert "init_from.model must be as it was" in found


def test_a_cell_is_known_by_the_content_of_its_start(first, tmp_path):
    plain = RunFolder(first).read_config()

    def key(path, rate=0.1):
        start = StartConfig(model=path, rate=rate)
        return Cell(plain.model_copy(update={"start": start}), {}).config_hash

    model, copy = first / "best.safetensors", tmp_path / "copy.safetensors"
    shutil.copy(model, copy)
    assert key(model) == key(copy)
    assert key(model) != key(model, rate=0.2)
    assert key(model) != Cell(plain, {}).config_hash
    copy.write_bytes(copy.read_bytes()[:-1] + b"\0")
    assert key(model) != key(copy)


@pytest.mark.slow
def test_a_few_images_from_elsewhere_are_learned_better_from_a_trained_model(tmp_path):
    def save(path, seed, each, change):
        made = read_photo_quality(
            partition=seed, per_class=each, validation_per_class=20, test_per_class=5, size=32
        )
        arrays = {}
        parts = made.splits
        for name, part in {
            "train": parts.train,
            "val": parts.validation,
            "test": parts.test,
        }.items():
            pixels = np.stack([made.inputs.load(int(index)) for index in part])
            arrays |= {f"{name}_images": change(pixels), f"{name}_labels": made.ranks[part]}
        np.savez(path, **arrays)

    def darker(pixels):
        return (255 * (pixels / 255) ** 1.5 * [1, 0.85, 0.7]).astype(np.uint8)

    save(tmp_path / "a.npz", 0, 60, lambda pixels: pixels)
    save(tmp_path / "b.npz", 1, 4, darker)
    options = {"report": False, "verbose": False, "workers": 0}
    network = {"dim": 8, "settings": {"backbone": {"options": {"channels": 16}}}}
    first = layline.train(tmp_path / "a.npz", epochs=15, out=tmp_path / "a", **options, **network)
    common = {"epochs": 8, **options}
    again = layline.train(
        tmp_path / "b.npz", init_from=first.folder, out=tmp_path / "again", **common
    )
    scratch = layline.train(tmp_path / "b.npz", out=tmp_path / "scratch", **common, **network)
    best = [min(each["validation_mae"] for each in run.history) for run in (again, scratch)]
    assert best[0] < 0.9 * best[1]
