"""Code from outside is found, known by what it does, and never run because a file says so."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.base import clone
from typer.testing import CliRunner

import layline
from layline import OrdinalClassifier, backbones, data, heads
from layline.bench.grid import Grid
from layline.cli import app
from layline.data.table_encoding import NumericColumn, TableEncoding
from layline.model.model import ModelSpec
from layline.model.model_file import save_model
from layline.training.run_folder import RunFolder
from layline.utils import plugins
from layline.utils.plugins import importing
from layline.utils.plugins import registry as registry_module

ROOT = Path(__file__).parents[1]
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
def nothing_stays(monkeypatch, tmp_path):
    """Take out again what a test has brought into this process, and work in its own folder."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield
    for plugin in list(importing._USED.values()):
        importing._forget(plugin)
    for registry in importing._REGISTRIES.values():
        registry._outside.clear()
        registry._taken.clear()
    registry_module._entry_points.cache_clear()
    importing._VOUCHED.clear()
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] in ("mine", "pack", "helper", "evil"):
            del sys.modules[name]


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(HEAD)
    return path


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that can be imported, but is not installed."""
    folder = tmp_path / "site"
    (folder / "pack").mkdir(parents=True)
    (folder / "pack" / "__init__.py").write_text("")
    (folder / "pack" / "heads.py").write_text("from ._impl import Mine, FACTOR\n")
    (folder / "pack" / "_impl.py").write_text(HEAD)
    (folder / "pack" / "other.py").write_text("X = 1\n")
    monkeypatch.syspath_prepend(str(folder))
    return folder / "pack"


@pytest.fixture
def installed(monkeypatch):
    """Let entry points be there, as (group, name, value, package)."""

    class Dist:
        def __init__(self, name):
            self.name, self.version = name, "1.2"

    def point(group, name, value, owner):
        found = EntryPoint(name, value, f"layline.{group}")
        vars(found)["dist"] = Dist(owner)
        return found

    def install(*points):
        made = [point(*each) for each in points]
        monkeypatch.setattr(
            registry_module, "entry_points", lambda group: [p for p in made if p.group == group]
        )
        registry_module._entry_points.cache_clear()

    return install


@pytest.fixture(scope="session")
def ratings(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    rank = np.digitize(x.sum(axis=1) + 0.3 * rng.normal(size=120), [-0.7, 0.7])
    lines = [f"{a:.4f},{b:.4f},{grade}" for (a, b), grade in zip(x, rank, strict=True)]
    path.write_text("a,b,grade\n" + "\n".join(lines) + "\n")
    return path


def trained(ratings, out, method, **options):
    return layline.train(
        ratings, label="grade", method=method, dim=4, out=out, settings=TRAINING, verbose=False,
        **options,
    )  # fmt: skip


# --- found


def test_a_file_offers_its_classes_by_their_names(mine):
    plugins.use([mine])
    assert "Mine" in layline.names()
    head = heads.create("Mine", 3, 5, factor=2.0)
    assert type(head).__name__ == "Mine"
    assert heads.options_of("Mine") == ("factor",)
    with pytest.raises(ValueError, match=r"must be those of Mine, got fctor=1: .* mean factor\?"):
        heads.create("Mine", 3, 5, fctor=1)


def test_a_file_with_lists_offers_what_they_name(tmp_path):
    (tmp_path / "mine.py").write_text(
        HEAD
        + "from layline.heads import HeadSpec\n"
        + "HEADS = {'own': HeadSpec(Mine, 'mine', 'my own', 'me, 2026', decode='mean'),\n"
        + "         'twice': lambda k, d, **options: Mine(k, d, 2.0, **options)}\n"
    )
    plugins.use(["mine.py"])
    assert {"own", "twice"} <= set(heads.names())
    assert "Mine" not in heads.names()
    assert heads.HEADS["own"].decode == "mean"
    assert heads.create("twice", 3, 5).factor == 2.0


def test_a_name_may_be_a_place(package):
    head = heads.create("pack.heads:Mine", 3, 5)
    assert type(head).__module__ == "pack._impl"
    assert "Mine" not in heads.names()  # only what was asked for
    assert OrdinalClassifier("pack.heads:Mine", dim=4, epochs=1).method == "pack.heads:Mine"


def test_an_entry_point_is_imported_when_it_is_asked_for(package, installed):
    installed(("heads", "bought", "pack.heads:Mine", "pack-of-heads"))
    assert "bought" in heads.names()
    assert "pack.heads" not in sys.modules
    assert type(heads.create("bought", 3, 5)).__name__ == "Mine"
    assert heads.HEADS.plugin_of("bought").label == "pack-of-heads 1.2"


def test_methods_and_sources_are_listed_with_their_owner(package, installed):
    installed(
        ("heads", "bought", "pack.heads:Mine", "pack-of-heads"),
        ("heads", "broken", "pack.nothing:Mine", "pack-of-ruins"),
        ("heads", "arc", "pack.heads:Mine", "pack-of-lies"),
    )
    said = CliRunner().invoke(app, ["methods"]).output
    assert re.search(r"bought +A head of one's own\n +of pack-of-heads 1\.2", said)
    assert re.search(r"broken +plugin must be importable.*\n +of pack-of-ruins 1\.2", said)
    assert re.search(r"arc is built in and cannot be replaced", said)
    entries = json.loads(CliRunner().invoke(app, ["methods", "--json"]).output)
    (bought,) = (each for each in entries if each["name"] == "bought")
    assert bought["plugin"] == "pack-of-heads 1.2"
    said = CliRunner().invoke(app, ["data", "list", "--plugin", str(EXAMPLE)]).output
    assert f"of {EXAMPLE}" in said


# --- refused


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nothing_like_it", "must be importable, got .*mine.py: ModuleNotFoundError"),
        ("raise SystemExit(3)", "must be importable, got .*mine.py: SystemExit: 3"),
        ("def f(:", "must be Python, got .*mine.py"),
        ("X = 1", "must have a head, features or a source, got none in .*mine.py"),
        ("HEADS = {'arc': 1}", "names of their own, got arc in .*mine.py: it is built in"),
        ("HEADS = {'own': 3}", "own of .*mine.py must be a subclass of OrdinalHead.*, got int"),
        ("HEADS = {'own': dict}", "own of .*mine.py must be .*, got the class dict"),
        ("BACKBONES = {'own': print}", "own of .*mine.py must be a subclass of TableFeatures"),
        ("SOURCES = {'own': print}", "must be a function with the argument partition"),
        (
            "from layline import OrdinalHead\nclass A(OrdinalHead): pass\nHEADS = {'own': A}",
            "must be a subclass of OrdinalHead that has _log_probs",
        ),
    ],
)
def test_what_is_wrong_with_a_plug_in_is_a_sentence(tmp_path, source, message):
    (tmp_path / "mine.py").write_text(source)
    before = heads.names(), backbones.names(), data.names()
    with pytest.raises(ValueError, match=message):
        plugins.use(["mine.py"])
    assert (heads.names(), backbones.names(), data.names()) == before
    assert "mine" not in sys.modules


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        ("nothing.py", "must be a file, got nothing.py: it is not there"),
        ("no-name.py", "must be a file that Python can import, got no-name.py: rename it"),
        ("./folder", "got the folder ./folder: it has no __init__.py"),
        ("pack:X", "must be importable, got pack: ModuleNotFoundError"),
        ("a b", "must be a .py file, a package or a module, got 'a b'"),
        ("json.py", "must have a name of its own, got .*json.py: Python has another module json"),
    ],
)
def test_what_is_no_plug_in_is_refused(tmp_path, plugin, message):
    (tmp_path / "folder").mkdir()
    for name in ("no-name.py", "json.py"):
        (tmp_path / name).write_text(HEAD)
    with pytest.raises(ValueError, match=message):
        plugins.use([plugin])


def test_two_plug_ins_of_one_name_are_refused_by_both_names(mine, package, installed, tmp_path):
    (tmp_path / "helper.py").write_text(HEAD)
    plugins.use([mine])
    with pytest.raises(ValueError, match=r"got Mine in .*mine\.py and in .*helper\.py: rename one"):
        plugins.use(["helper.py"])
    other = tmp_path / "elsewhere" / "mine.py"
    other.parent.mkdir()
    other.write_text(HEAD + "X = 1\n")
    with pytest.raises(ValueError, match=r"got .*mine\.py and .*elsewhere/mine\.py: rename"):
        plugins.use([other])
    installed(
        ("heads", "bought", "pack.heads:Mine", "one"), ("heads", "bought", "pack.other:X", "two")
    )
    with pytest.raises(ValueError, match=r"got bought in one 1\.2 and in two 1\.2: uninstall"):
        heads.create("bought", 3, 4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing_there:Mine", "must be importable, got nothing_there: ModuleNotFoundError"),
        ("pack.heads:Yours", "method must be in pack.heads, got pack.heads:Yours: it is not"),
        ("pack.other:X", "pack.other:X of pack.other must be a subclass of OrdinalHead"),
        ("mine.py:Mine", "name the file with --plugin mine.py"),
        ("os:getcwd", "must take num_classes, dim and its options, got an error"),
    ],
)
def test_a_place_that_has_no_method_is_a_sentence(package, name, message):
    with pytest.raises(ValueError, match=message):
        heads.create(name, 3, 4)


def test_a_head_of_another_size_is_refused(tmp_path):
    (tmp_path / "mine.py").write_text(HEAD + "HEADS = {'own': lambda k, d: Mine(k + 1, d)}")
    plugins.use(["mine.py"])
    with pytest.raises(ValueError, match="own must be made for 3 classes and dim=4, got 4 and 4"):
        heads.create("own", 3, 4)


# --- known by what it does


def test_the_version_is_that_of_all_its_modules_and_of_nothing_else(package, tmp_path):
    def version():
        return plugins.version_of("pack.heads")

    before = version()
    (package / "_impl.py").write_text("# a remark\n" + HEAD.replace("of one's own", "of mine"))
    (package / "other.py").write_text("X = 2\n")
    assert version() == before
    (package / "_impl.py").write_text(HEAD.replace("FACTOR = 1.0", "FACTOR = 2.0"))
    assert version() != before
    (tmp_path / "helper.py").write_text("A = 1\n")
    (tmp_path / "mine.py").write_text("from helper import A\n" + HEAD)
    first = plugins.version_of(str(tmp_path / "mine.py"))
    (tmp_path / "helper.py").write_text("A = 2\n")
    assert plugins.version_of(str(tmp_path / "mine.py")) != first


def grid_of(ratings, **more):
    return Grid.model_validate(
        {
            "data": [
                {
                    "name": "ratings",
                    "source": "table",
                    "root": str(ratings),
                    "options": {"label": "grade"},
                }
            ],
            "settings": {"head": {"dim": 4}, **TRAINING},
            **more,
        }
    )


@pytest.fixture(scope="session")
def go():
    import io

    from rich.console import Console

    from layline.bench.engines import Executor
    from layline.bench.runner import GridProgress, run_grid
    from layline.bench.store import Store

    def call(grid, folder, jobs=1):
        said = io.StringIO()
        cells, store = grid.cells(), Store(folder)
        failed = run_grid(
            cells, store, GridProgress(Console(file=said, width=300)), Executor(jobs=jobs)
        )
        assert failed == [], [store.find(cell).error for cell in failed]
        return store.frame(cells, grid.read_by()), said.getvalue()

    return call


def test_a_changed_head_outside_the_package_gives_new_numbers(ratings, mine, tmp_path, go):
    grid = grid_of(ratings, methods=["Mine", "classification"], plugins=[str(mine)])
    first, _ = go(grid, tmp_path / "grid")
    again, said = go(grid, tmp_path / "grid")
    assert "2 runs, 2 of them finished before" in said
    assert again["seconds"].tolist() == first["seconds"].tolist()
    mine.write_text(HEAD.replace("FACTOR = 1.0", "FACTOR = 0.0"))  # knows nothing
    after, said = go(grid, tmp_path / "grid")
    assert "1 run is made again: the code has changed since" in said
    assert after["nll"][0] == pytest.approx(np.log(3))
    assert first["nll"][0] != after["nll"][0]
    assert after["nll"][1] == first["nll"][1]
    assert after["version"][0] != first["version"][0]
    mine.write_text(HEAD)
    back, said = go(grid, tmp_path / "grid")
    assert "2 runs, 2 of them finished before" in said
    assert back["nll"].tolist() == first["nll"].tolist()


def test_a_package_that_changed_since_it_was_imported_is_refused(package):
    heads.create("pack.heads:Mine", 3, 4)
    plugin = heads.HEADS.plugin_of("pack.heads:Mine")
    (package / "_impl.py").write_text(HEAD.replace("1.0", "2.0"))
    with pytest.raises(ValueError, match=r"must be as it was imported.*start Python again"):
        plugins.refresh(plugin)
    importing._forget(plugin)  # imported by somebody else before we knew of it
    with pytest.raises(ValueError, match=r"must be as it was imported.*start Python again"):
        heads.create("pack.heads:Mine", 3, 4)


# --- in a run


def test_a_run_finds_its_plug_in_again(ratings, mine, tmp_path, capsys):
    (tmp_path / "helper.py").write_text(HEAD.replace("Mine", "Unused"))
    run = trained(ratings, tmp_path / "run", "Mine", plugins=[mine, "helper.py"])
    folder = RunFolder(run.folder)
    assert (folder.plugins / "mine.py").read_text() == HEAD
    assert not (folder.plugins / "helper.py").exists()
    assert folder.read_config().plugins == [str(mine)]
    mine.write_text(HEAD.replace("FACTOR = 1.0", "FACTOR = 0.0"))
    again = layline.evaluate(run.folder)  # with the head that it was trained with
    assert again.metrics["nll"] == pytest.approx(run.metrics["nll"])
    said = " ".join(capsys.readouterr().err.split())
    assert "has changed since" in said
    assert "the copy in" in said
    other = layline.evaluate(run.folder, plugins=[mine])
    assert other.metrics["nll"] == pytest.approx(np.log(3))
    assert "is not what the run was trained with" in " ".join(capsys.readouterr().err.split())
    more = {"training": {"epochs": 2}}
    with pytest.raises(ValueError, match=r"plugins must be those that .*run was started with"):
        layline.train(resume=run.folder, plugins=[mine], verbose=False)
    mine.unlink()
    assert layline.train(resume=run.folder, verbose=False).metrics["nll"] == run.metrics["nll"]
    with pytest.raises(ValueError, match="epochs must stay as it was"):
        layline.train(resume=run.folder, settings=more, verbose=False)


def test_a_run_of_somebody_else_runs_nothing(ratings, mine, tmp_path, monkeypatch):
    run = trained(ratings, tmp_path / "run", "Mine", plugins=[mine])
    importing._forget(importing._USED["mine"])
    monkeypatch.setenv("LAYLINE_CACHE", str(tmp_path / "another user"))
    (run.folder / "plugins" / "mine.py").write_text("raise SystemExit(7)\n")
    for call in (
        lambda: layline.evaluate(run.folder, verbose=False),
        lambda: layline.train(resume=run.folder, verbose=False),
        lambda: layline.train(ratings, from_run=run.folder, verbose=False),
    ):
        with pytest.raises(ValueError, match=r"plugins must be yours or named, got .*mine.py"):
            call()
    assert "mine" not in sys.modules
    config = run.folder / "config.toml"
    written = config.read_text()
    config.write_text(written.replace(str(mine), str(tmp_path / "evil.py")))
    (tmp_path / "evil.py").write_text("open('ran', 'w')\n")
    for name in ("Mine", "evil:open"):
        config.write_text(config.read_text().replace("Mine", name))
        with pytest.raises(ValueError, match=r"must be"):
            layline.evaluate(run.folder, verbose=False)
        assert not Path("ran").exists()
    config.write_text(written)
    for command in ("report", "card"):  # which need none
        said = CliRunner().invoke(app, [command, str(run.folder)])
        assert said.exit_code == 0, said.output
    card = (run.folder / "README.md").read_text(encoding="utf-8")
    assert "layline predict best.safetensors rows.csv --plugin mine.py" in card
    assert "plugins=['mine.py'])" in card
    out = str(tmp_path / "model.onnx")
    said = CliRunner().invoke(app, ["export", str(run.folder), "--out", out])
    assert said.exit_code == 1, said.output
    assert "plugins must be yours or named" in " ".join(said.output.split())
    assert "mine" not in sys.modules
    assert layline.evaluate(run.folder, plugins=[mine], verbose=False).metrics["samples"]


def test_a_run_goes_on_from_a_model_with_a_plug_in(ratings, mine, tmp_path):
    settings = {**TRAINING, "plugins": ["mine.py"], "head": {"method": "Mine", "dim": 4}}
    run = layline.train(
        ratings, label="grade", out=tmp_path / "run", settings=settings, verbose=False
    )
    new = layline.train(
        ratings, label="grade", from_run=run.folder, out=tmp_path / "new", settings=TRAINING,
        verbose=False,
    )  # fmt: skip
    assert RunFolder(new.folder).read_config().plugins == [str(mine)]


# --- model files


@pytest.fixture
def model_file(mine, tmp_path):
    """A model of a table, as it is before training."""
    plugins.use([mine])
    columns = tuple(NumericColumn(name, 0.0, indicator=False) for name in "ab")
    encoding, options = TableEncoding(columns, ()), {"in_features": 2, "hidden": [3]}
    spec = ModelSpec("mlp", "Mine", 4, ("0", "1", "2"), encoding, options)
    save_model(spec.build(), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_a_model_names_the_plug_in_that_it_needs(model_file, mine, ratings):
    described = description(model_file)
    assert described["plugins"] == {"method": {"module": "mine", "of": "mine.py"}}
    assert str(mine.parent) not in json.dumps(described)
    importing._forget(importing._USED["mine"])
    cure = r"nothing was imported; name it with --plugin mine\.py or plugins=\['mine\.py'\]"
    with pytest.raises(ValueError, match=rf"got 'Mine' of mine\.py: {cure}"):
        layline.load(model_file)
    assert "mine" not in sys.modules
    assert layline.load(model_file, plugins=[mine]).predict(ratings)[0] in ("0", "1", "2")


def description(path):
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["layline"])


def with_description(path, **changes):
    """Write a file that says something else, without a digest, as a stranger may."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    about = description(path) | changes
    del about["blake2b"]
    other = path.with_name("hostile.safetensors")
    save_file(tensors, other, metadata={"layline": json.dumps(about)})
    return other


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "evil:system"},
        {"backbone": "evil:system"},
        {"method": "evil:system", "plugins": {"method": {"module": "evil", "of": "evil 1.0"}}},
        {"method": "evil", "plugins": {"method": {"module": "evil", "of": "evil.py"}}},
        {"plugins": {"method": {"module": "evil", "of": "$(touch ran); evil"}}},
        {"plugins": ["evil"]},
    ],
)
def test_a_hostile_file_imports_nothing(model_file, tmp_path, monkeypatch, changes):
    monkeypatch.syspath_prepend(str(tmp_path / "place"))
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "evil.py").write_text("open('ran', 'w')\nfrom os import system\n")
    (tmp_path / "evil.py").write_text("open('ran', 'w')\nfrom os import system\n")
    path = with_description(model_file, **changes)
    with pytest.raises(ValueError, match=r"must be"):
        layline.load(path)
    assert "evil" not in sys.modules
    assert not Path("ran").exists()


def test_of_a_module_that_was_named_only_its_heads_will_do(model_file, package):
    importing._forget(importing._USED["mine"])  # it has the same name
    (package / "heads.py").write_text(
        "import os\nfrom ._impl import Mine\ndef make(*a): os.abort()\n"
    )
    for place in ("os.kill", "make", "os", "nothing"):
        path = with_description(model_file, method=f"pack.heads:{place}")
        with pytest.raises(ValueError, match=r"must be a plug-in that you named"):
            layline.load(path, plugins=["pack.heads"])
    path = with_description(model_file, method="pack.heads:Mine")
    assert layline.load(path, plugins=["pack.heads"]).spec.method == "pack.heads:Mine"


def test_a_name_of_the_standard_library_is_never_imported_for_a_file(model_file):
    path = with_description(model_file, method="turtledemo.clock:main")
    with pytest.raises(ValueError, match=r"plug-in that you named, got 'turtledemo\.clock:main'"):
        layline.load(path)
    assert "turtledemo" not in sys.modules


def test_an_installed_plug_in_is_enough(package, installed, tmp_path, ratings):
    installed(("heads", "bought", "pack.heads:Mine", "pack-of-heads"))
    run = trained(ratings, tmp_path / "run", "bought")
    of = description(run.folder / "best.safetensors")["plugins"]["method"]["of"]
    assert of == "pack-of-heads 1.2"
    assert layline.load(run.folder).spec.method == "bought"
    importing._forget(importing._USED["pack.heads"])
    installed()
    with pytest.raises(ValueError, match=r"nothing was imported; pip install pack-of-heads==1\.2"):
        layline.load(run.folder)


def test_a_model_without_plug_ins_is_written_as_before(tmp_path):
    model = layline.load(next((ROOT / "tests" / "model_files").glob("*.safetensors")))
    save_model(model, tmp_path / "again.safetensors")
    assert "plugins" not in description(tmp_path / "again.safetensors")


# --- the estimator


def make_head(num_classes, dim, norm=2.0):
    from layline.geometry.layouts import Linear
    from layline.geometry.similarities import StudentT

    return heads.ConstrainedProxies(Linear(num_classes, dim, norm=norm), StudentT())


def make_net(in_features, dim):
    return torch.nn.Sequential(torch.nn.Linear(in_features, dim), torch.nn.ReLU())


def test_the_estimator_takes_classes_and_functions():
    import pickle

    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = np.digitize(x.sum(axis=1), [-1, 1])
    options = {"dim": 4, "epochs": 2, "random_state": 0}
    named = OrdinalClassifier("classification", "mlp", **options).fit(x, y)
    by_class = clone(OrdinalClassifier(heads.Classification, backbones.MLP, **options)).fit(x, y)
    np.testing.assert_array_equal(by_class.predict_proba(x), named.predict_proba(x))
    assert by_class.get_params()["method"] is heads.Classification
    own = OrdinalClassifier(make_head, make_net, head_options={"norm": 3.0}, **options)
    own = clone(own).fit(x, y)
    assert own.proxies_.shape == (3, 4)
    again = pickle.loads(pickle.dumps(own))
    np.testing.assert_array_equal(again.predict_proba(x), own.predict_proba(x))
    first = own.features_[0].weight.clone()
    assert torch.equal(own.fit(x, y).features_[0].weight, first)  # made anew in every fit


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": 3}, "method must be a name, or a subclass of OrdinalHead.*got 3"),
        ({"method": torch.nn.Linear}, "method must be a name, or a subclass of OrdinalHead"),
        ({"method": make_net}, "make_net must give an OrdinalHead, got Sequential"),
        (
            {"backbone": 3},
            "features must be a name or an nn.Module, got 3: .* what makes a module will do",
        ),
        ({"backbone": dict}, "features must make an nn.Module, got dict"),
        (
            {"backbone": backbones.MLP, "hidden": [3]},
            "hidden must be None if features is a module or makes one",
        ),
    ],
)
def test_what_makes_no_head_or_features_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        OrdinalClassifier(**given, dim=4, epochs=1).fit(np.eye(6), [0, 1, 2] * 2)


# --- competitors


def test_competitors_are_fitted_to_the_same_splits(ratings, tmp_path, go):
    from sklearn.linear_model import LogisticRegression, Ridge

    (tmp_path / "rivals.py").write_text(
        "from sklearn.linear_model import LogisticRegression\n"
        "def plain(C=1.0):\n    return LogisticRegression(C=C)\n"
    )
    grid = grid_of(
        ratings,
        methods=["classification"],
        seeds=[0, 1],
        tune={"training.learning_rate": [0.01, 0.001]},
        decodings=["mode", "median"],
        competitors=[
            "sklearn.linear_model:LogisticRegression(C=0.5)",
            {"name": "ridge", "estimator": "sklearn.linear_model:Ridge", "options": {"alpha": 2.0}},
            f"{tmp_path / 'rivals.py'}:plain",
        ],
    )
    cells = grid.cells()
    assert len({cell.key for cell in cells if cell.competitor}) == 6  # whatever is tuned of ours
    frame, said = go(grid, tmp_path / "grid")
    assert "10 runs" in said
    config = next(cell.config for cell in cells if cell.labels["method"] == "ridge")
    dataset = data.read("table", ratings, 0, config.data.calibration, label="grade")
    parts, rows = dataset.splits, dataset.inputs.values
    mine = frame[(frame["seed"] == "0") & (frame["setting"] == "")]
    logistic = LogisticRegression(C=0.5).fit(rows[parts.train], dataset.ranks[parts.train])
    proba, truth = logistic.predict_proba(rows[parts.test]), dataset.ranks[parts.test]
    (row,) = mine[mine["method"].str.startswith("Logistic") & (mine["decode"] == "mode")].to_dict(
        "records"
    )
    assert row["accuracy"] == np.mean(proba.argmax(axis=1) == truth)
    assert row["nll"] == pytest.approx(-np.log(proba[np.arange(len(truth)), truth]).mean())
    ridge = Ridge(alpha=2.0).fit(rows[parts.train], dataset.ranks[parts.train])
    ranks = np.clip(np.round(ridge.predict(rows[parts.test])), 0, 2)
    for decode in ("mode", "median"):
        (row,) = mine[(mine["method"] == "ridge") & (mine["decode"] == decode)].to_dict("records")
        assert row["mae"] == pytest.approx(np.abs(ranks - truth).mean())
        assert np.isnan(row["nll"])
        assert np.isnan(row["rps"])
    assert "scikit-learn" in mine[mine["method"] == "ridge"]["version"].iloc[0]
    (tmp_path / "rivals.py").write_text(
        (tmp_path / "rivals.py").read_text().replace("C=1.0", "C=9.0")
    )
    _, said = go(grid, tmp_path / "grid")
    assert "2 runs are made again: the code has changed since" in said


def test_the_version_of_a_library_is_in_the_key(ratings, monkeypatch):
    from layline.bench import competitors

    grid = grid_of(
        ratings, methods=["classification"], competitors=["sklearn.linear_model:Ridge(alpha=1)"]
    )
    ours, theirs = grid.cells()
    before = theirs.key, ours.key
    monkeypatch.setattr(competitors, "distribution_of", lambda _: "scikit-learn 99.0")
    our_new, their_new = grid.cells()
    assert our_new.key == before[1]
    assert their_new.key != before[0]
    assert their_new.config_hash == theirs.config_hash


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sklearn", "competitor must be MODULE:NAME, got 'sklearn'"),
        ("sklearn.nothing:A", "competitor must be importable, got sklearn.nothing:A"),
        ("sklearn.svm:Svc", "competitor must be in sklearn.svm, got sklearn.svm:Svc: it is not"),
        ("sklearn.svm:SVC(1)", "must be MODULE:NAME.option=value, ….*options have names"),
        ("sklearn.svm:SVC(c=1)", "made from its options.*unexpected keyword"),
        ("sklearn.preprocessing:StandardScaler", "must have fit and predict_proba or predict"),
        ("math:pi", "must be a class or a function, got math:pi: it is a float"),
    ],
)
def test_what_is_no_competitor_is_a_sentence(ratings, text, message):
    with pytest.raises(ValueError, match=message):
        grid_of(ratings, methods=["classification"], competitors=[text]).cells()


def test_a_competitor_needs_a_table_or_frozen_features():
    grid = Grid.model_validate(
        {
            "data": [{"name": "photos", "source": "photo-quality"}],
            "methods": ["classification"],
            "competitors": ["sklearn.svm:SVC"],
        }
    )
    with pytest.raises(ValueError, match="photos, SVC: competitors must have a table or frozen"):
        grid.cells()


def test_probabilities_are_put_to_their_ranks():
    from layline.bench.baselines import Competitor, _by_rank

    rival = Competitor(name="rival", estimator="a:b")

    class Partial:
        classes_ = np.array([0, 2])

    found = _by_rank(rival, Partial(), np.array([[0.25, 0.75]]), 1, 4)
    assert found.tolist() == [[0.25, 0, 0.75, 0]]
    for wrong in ([[0.5, 0.2]], [[np.nan, 1.0]], [[1.5, -0.5]], [[1.0]]):
        with pytest.raises(ValueError, match="rival must give each sample a probability"):
            _by_rank(rival, Partial(), np.array(wrong), 1, 4)


# --- the example, and a package in an environment of its own


def test_the_document_shows_the_example():
    text = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    source = EXAMPLE.read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    shown = [block for block in blocks if "class " in block or "def read_" in block]
    assert len(shown) == 4
    for block in shown:
        assert block.strip() in source


def test_the_example_trains(tmp_path):
    small = combine_small()
    run = layline.train(
        "glow", plugins=[EXAMPLE], method="bump", dim=4, out=tmp_path / "run", settings=small,
        verbose=False,
    )  # fmt: skip
    assert run.metrics["accuracy"] > 0.25
    assert run.model.spec.backbone == "stripes"
    assert set(description(run.folder / "best.safetensors")["plugins"]) == {"method", "backbone"}
    model = heads.create("quarter", 5, 8)
    angles = (model.proxies() @ model.proxies().T)[0]
    np.testing.assert_allclose(angles.detach(), np.cos(np.linspace(0, np.pi / 2, 5)), atol=1e-6)


def combine_small():
    return {**TRAINING, "training": {"epochs": 3, "device": "cpu"}, "data": {"workers": 0}}


# In the environment of the package: the commands one after another, in one process.
ALL_OF_IT = r"""
import json, re, sys
from pathlib import Path
from typer.testing import CliRunner
import layline
from layline.cli import app

def command(*words):
    said = CliRunner().invoke(app, [*words])
    assert said.exit_code == 0, said.stderr
    return said.stdout

assert re.search(r"bought .*\n +of pack-of-heads 1\.2", command("methods"))
small = ("--set", "training.epochs=1", "--set", "head.dim=4", "--set", "training.device=cpu")
data = ("ratings.csv", "--label", "grade")
command("train", *data, "--method", "bought", "--out", "run", "--no-report", *small)
assert json.loads(Path("run/test.json").read_text())["samples"] == 24
tables = set()
for engine in ("local", "ray"):
    asked = ("--methods", "bought,classification", "--engine", engine, "--jobs", "2")
    command("bench", *data, *asked, "--out", engine, *small)
    tables.add(Path(engine, "tables", "mae-median.csv").read_text())
(table,) = tables
assert "bought" in table
assert str(layline.load("run").predict("ratings.csv")[0]) in ("0", "1", "2")
"""


@pytest.mark.slow
def test_a_package_with_entry_points_in_an_environment_of_its_own(tmp_path, ratings):
    """Installed from a wheel: trained, benched by two workers and by Ray, loaded again."""
    project = tmp_path / "project"
    (project / "pack").mkdir(parents=True)
    (project / "pack" / "__init__.py").write_text("")
    (project / "pack" / "heads.py").write_text("from pack._impl import Mine\n")
    (project / "pack" / "_impl.py").write_text(HEAD)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "pack-of-heads"\nversion = "1.2"\n'
        '[project.entry-points."layline.heads"]\nbought = "pack.heads:Mine"\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["pack"]\n'
    )
    build_wheel(project, tmp_path / "wheels")
    shutil.rmtree(project)
    place = tmp_path / "environment"
    venv.create(place, with_pip=False, symlinks=os.name != "nt")
    (site,) = place.glob("**/site-packages")
    with zipfile.ZipFile(next((tmp_path / "wheels").glob("*.whl"))) as wheel:
        assert "pack/heads.py" in wheel.namelist()
        wheel.extractall(site)  # which is all that an installer does with a wheel of pure Python
    here = [str(Path(layline.__file__).parents[1]), *(p for p in sys.path if "site-packages" in p)]
    (site / "here.pth").write_text("\n".join(here) + "\n")
    shutil.copy(ratings, tmp_path / "ratings.csv")
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": "", "COLUMNS": "200"}
    said = subprocess.run(
        [str(python), "-c", ALL_OF_IT],
        capture_output=True, text=True, env=environment, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    missing = r"'bought' of pack-of-heads 1\.2: nothing was imported; pip install pack-of-heads"
    with pytest.raises(ValueError, match=missing):  # where it is not installed
        layline.load(tmp_path / "run")


def build_wheel(project, wheels):
    wheels.mkdir()
    program = f"import os; os.chdir({str(project)!r}); import hatchling.build as b; "
    program += f"b.build_wheel({str(wheels)!r})"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
