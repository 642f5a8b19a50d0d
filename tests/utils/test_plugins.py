"""Plug-ins: files, modules and entry points; a file never decides what is imported."""

import contextlib
import importlib
import json
import pickle
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from typer.testing import CliRunner

import layline
from layline import OrdinalClassifier, backbones, data, heads
from layline.cli import app
from layline.geometry import Linear, StudentT
from layline.utils import registry
from layline.utils.registry import load_plugins

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "my_plugin.py"
HEAD = """
import torch
from torch import nn
from layline import OrdinalHead

class Mine(OrdinalHead):
    '''A head of one's own.'''
    def __init__(self, num_classes, dim, factor=1.0):
        super().__init__(num_classes, dim)
        self.layer, self.factor = nn.Linear(dim, num_classes), factor
    def _log_probs(self, features):
        return (FACTOR * self.factor * self.layer(features)).log_softmax(dim=1)

FACTOR = 1.0
"""
TRAINING = {"training": {"epochs": 1, "device": "cpu"}, "report": {"enabled": False}}


@pytest.fixture(autouse=True)
def isolated(monkeypatch, tmp_path):
    """Forget what a test has loaded, and work in its own folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    forget()
    registry._entry_points.cache_clear()


def forget():
    """Unload all plug-ins, as in a new process."""
    for name in ("mine", "helper", "evil", *registry.LOADED):
        sys.modules.pop(name, None)
    registry.LOADED.clear()


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HEAD)
    return path


@pytest.fixture
def install(mine, monkeypatch):
    """Install packages with an entry point each, instead of those that were installed before."""
    monkeypatch.syspath_prepend(mine.parent)

    def install(**packages):
        for old in mine.parent.glob("*.dist-info"):
            shutil.rmtree(old)
        for package, point in packages.items():
            folder = mine.parent / f"{package}-1.2.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Name: {package}\nVersion: 1.2\n")
            (folder / "entry_points.txt").write_text(f"[layline.heads]\n{point}\n")
        importlib.invalidate_caches()
        registry._entry_points.cache_clear()

    return install


def train(ratings, out, method, **options):
    return layline.train(
        ratings, label="grade", method=method, dim=4, out=out, settings=TRAINING, verbose=False,
        **options,
    )  # fmt: skip


def test_a_file_offers_its_classes_or_what_its_lists_name(mine, tmp_path):
    load_plugins([mine])
    assert type(heads.create("Mine", 3, 5, factor=2.0)).__name__ == "Mine"
    assert heads.options_of("Mine") == ("factor",)
    with pytest.raises(ValueError, match=r"fctor.*did you mean factor\?"):
        heads.create("Mine", 3, 5, fctor=1)
    (tmp_path / "helper.py").write_text(HEAD)
    load_plugins(["helper.py"])
    with pytest.raises(ValueError, match=r"mine .* and helper .* both offer 'Mine'"):
        heads.create("Mine", 3, 4)
    forget()
    mine.write_text(
        HEAD
        + "from layline.heads import HeadSpec\n"
        + "HEADS = {'own': HeadSpec(Mine, 'mine', 'my own', 'me, 2026', decode='mean'),\n"
        + "         'large': lambda num_classes, dim: Mine(num_classes + 1, dim)}\n"
    )
    load_plugins(["mine.py"])
    assert "Mine" not in heads.names()
    assert heads.HEADS["own"].decode == "mean"
    with pytest.raises(ValueError, match="large must make an OrdinalHead for 3 classes and dim=4"):
        heads.create("large", 3, 4)


def test_methods_and_sources_are_listed_with_their_plugin(install):
    install(own="bought = mine:Mine", ruin="broken = nothing:Mine", clash="arc = mine:Mine")
    output = CliRunner().invoke(app, ["methods"]).output
    assert re.search(r"bought +A head of one's own\n +.*own 1\.2", output)
    assert re.search(r"broken .*cannot be imported.*\n +.*ruin 1\.2", output)
    assert "'arc', a built-in name" in output
    entries = json.loads(CliRunner().invoke(app, ["methods", "--json"]).output)
    assert "own 1.2" in [each.get("plugin") for each in entries if each["name"] == "bought"]
    output = CliRunner().invoke(app, ["data", "list", "--plugin", str(EXAMPLE)]).output
    assert "my_plugin" in output


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nothing_like_it", "mine.py cannot be imported: ModuleNotFoundError"),
        ("raise SystemExit(3)", "mine.py cannot be imported: SystemExit: 3"),
        ("HEADS = {'arc': 1}", "mine .*offers 'arc', a built-in name"),
        (None, "mine.py does not exist"),
        ("HEADS = {'own': 3}", "own of mine .*must be a subclass of OrdinalHead.*, got int"),
        ("BACKBONES = {'own': print}", "own of mine .*must be a subclass of"),
        (
            "from layline import OrdinalHead\nclass A(OrdinalHead): pass\nHEADS = {'own': A}",
            "must be a subclass of OrdinalHead that has _log_probs",
        ),
    ],
)
def test_an_invalid_plug_in_is_refused(tmp_path, source, message):
    if source is not None:
        (tmp_path / "mine.py").write_text(source)
    with pytest.raises(ValueError, match=message):  # noqa: PT012
        load_plugins(["mine.py"])
        _ = heads.names(), backbones.names(), data.names()


def test_a_file_may_have_any_name_but_that_of_another_module(tmp_path):
    for name in ("my-head.py", "json.py"):
        (tmp_path / name).write_text(HEAD)
    load_plugins(["my-head.py"])
    head = heads.create("Mine", 3, 5)
    assert type(pickle.loads(pickle.dumps(head))) is type(head)
    with pytest.raises(ValueError, match=r"json\.py has the name of another module"):
        load_plugins(["json.py"])


@pytest.fixture
def run(ratings, mine, tmp_path):
    run = train(ratings, tmp_path / "run", "Mine", plugins=[mine])
    forget()
    return run


def test_a_run_needs_the_plug_in_that_the_caller_names(run, mine, ratings):
    assert list(json.loads((run.folder / "environment.json").read_text())["plugins"]) == ["mine"]
    path = run.folder / "best.safetensors"
    described = read_description(path)
    assert described["plugins"]["method"].startswith("mine ")
    assert str(mine.parent) not in json.dumps(described)
    assert layline.load(path, plugins=[mine]).predict(ratings)[0] in ("0", "1", "2")
    again = layline.evaluate(run.folder, plugins=[mine], verbose=False)
    assert again.metrics["nll"] == pytest.approx(run.metrics["nll"])
    resumed = layline.train(resume=run.folder, plugins=[mine], verbose=False)
    assert resumed.metrics["nll"] == run.metrics["nll"]
    forget()
    mine.write_text("open('ran', 'w')\n")  # nothing that a file names is imported
    for call in (
        lambda: layline.evaluate(run.folder, verbose=False),
        lambda: layline.train(resume=run.folder, verbose=False),
        lambda: layline.load(run.folder),
        lambda: layline.load(path),
    ):
        with pytest.raises(ValueError, match=r"'Mine' comes from the plug-in .*mine.* not loaded"):
            call()
    assert "mine" not in sys.modules
    assert not Path("ran").exists()
    result = CliRunner().invoke(app, ["report", str(run.folder)])  # it needs no plug-in
    assert result.exit_code == 0, result.output


def read_description(path):
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["layline"])


def change_description(path, changes):
    """Write a copy of a model file with another description."""
    about, copy = read_description(path) | changes, path.with_name("changed.safetensors")
    save_file(load_file(path), copy, metadata={"layline": json.dumps(about)})
    return copy


HOSTILE = [
    {"method": "evil:system"},
    {"backbone": "evil:system"},
    {"method": "evil", "plugins": {"method": "evil 1.0"}},
    {"method": "evil.py", "plugins": {"method": "evil.py"}},
    {"plugins": {"method": "$(touch ran); evil"}},
    {"plugins": ["evil"]},
]


def test_a_hostile_file_imports_nothing_and_a_huge_one_is_refused(run, mine, tmp_path):
    path = run.folder / "best.safetensors"
    (tmp_path / "evil.py").write_text("open('ran', 'w')\nfrom os import system\n")
    for changes in HOSTILE:
        with contextlib.suppress(ValueError):
            layline.load(change_description(path, changes), plugins=[mine])
        assert "evil" not in sys.modules
        assert not Path("ran").exists()
    huge = change_description(path, {"dim": 10**12})
    with pytest.raises(ValueError, match=r"the tensor .* must be floats of shape"):
        layline.load(huge, plugins=[mine])


def test_entry_points_may_be_found_by_the_backport_of_importlib_metadata(install):
    import importlib_metadata  # dask imports it; it then finds the entry points

    install(own="bought = mine:Mine")
    (point,) = registry._entry_points("layline.heads")
    assert isinstance(point, importlib_metadata.EntryPoint)
    assert heads.create("bought", 3, 4).num_classes == 3


def test_an_installed_plug_in_need_not_be_named(install, tmp_path, ratings):
    install(own="bought = mine:Mine")
    assert "bought" in heads.names()
    assert "mine" not in sys.modules  # imported when it is looked up
    run = train(ratings, tmp_path / "run", "bought")
    described = read_description(run.folder / "best.safetensors")
    assert described["plugins"] == {"method": "own 1.2"}
    assert layline.load(run.folder).classes == ("0", "1", "2")
    forget()
    install()
    with pytest.raises(ValueError, match=r"comes from the plug-in own 1\.2"):
        layline.load(run.folder)


def make_head(num_classes, dim, norm=2.0):
    return heads.ConstrainedProxies(Linear(num_classes, dim, norm=norm), StudentT())


def make_net(in_features, dim):
    return torch.nn.Sequential(torch.nn.Linear(in_features, dim), torch.nn.ReLU())


def test_the_estimator_takes_classes_and_functions():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = np.digitize(x.sum(axis=1), [-1, 1])
    options = {"dim": 4, "epochs": 2, "random_state": 0}
    named = OrdinalClassifier("classification", "mlp", **options).fit(x, y)
    by_class = clone(OrdinalClassifier(heads.Classification, backbones.MLP, **options)).fit(x, y)
    np.testing.assert_array_equal(by_class.predict_proba(x), named.predict_proba(x))
    own = OrdinalClassifier(make_head, make_net, head_options={"norm": 3.0}, **options)
    own = clone(own).fit(x, y)
    assert own.proxies_.shape == (3, 4)
    again = pickle.loads(pickle.dumps(own))
    np.testing.assert_array_equal(again.predict_proba(x), own.predict_proba(x))


def test_the_document_shows_the_example():
    text = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    source = EXAMPLE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    shown = [block for block in blocks if "class " in block or "def read_" in block]
    assert len(shown) == 4
    for block in shown:
        assert block.strip() in source


def test_the_example_trains(tmp_path):
    small = {**TRAINING, "training": {"epochs": 3, "device": "cpu"}, "data": {"workers": 0}}
    run = layline.train(
        "glow", plugins=[EXAMPLE], method="bump", dim=4, out=tmp_path / "run", settings=small,
        verbose=False,
    )  # fmt: skip
    assert run.metrics["accuracy"] > 0.25
    assert run.model.description.backbone == "stripes"
    described = read_description(run.folder / "best.safetensors")
    assert set(described["plugins"]) == {"method", "backbone"}
    model = heads.create("quarter", 5, 8)
    angles = (model.proxies() @ model.proxies().T)[0]
    np.testing.assert_allclose(angles.detach(), np.cos(np.linspace(0, np.pi / 2, 5)), atol=1e-6)
