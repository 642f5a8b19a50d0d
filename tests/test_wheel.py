"""The wheel in environments that have what its metadata ask for, and nothing else.

Installing torch ten times would cost gigabytes, so an environment here is an empty venv with the
wheel, and a folder of links to the distributions that an installer would add: those that the
metadata of the wheel name for the wanted extras, and those that these need in turn, versions and
markers evaluated. A library that is used without being declared is not there, and its import fails.
"""

import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections import Counter
from email.parser import HeaderParser
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import layline

ROOT = Path(__file__).parents[1]
LIBRARIES = Path(sysconfig.get_path("purelib"))

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel as ``python -m build`` does, by way of the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


@pytest.fixture(scope="module")
def empty(wheel, tmp_path_factory):
    """Give an environment with the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(folder)]
    install = [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    return folder


def needed(metadata, extras):
    """Name the distributions that an installer would add for some extras of the wheel."""
    found: dict[str, set[str]] = {}
    todo = [(text, frozenset(extras)) for text in metadata.get_all("Requires-Dist")]
    while todo:
        text, wanted = todo.pop()
        requirement = Requirement(text)
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in (*wanted, "")):
            continue
        name = canonicalize_name(requirement.name)
        there = distribution(name)
        assert requirement.specifier.contains(there.version, prereleases=True), text
        if name not in found or requirement.extras - found[name]:
            found[name] = found.get(name, set()) | requirement.extras
            todo += [(each, frozenset(found[name])) for each in there.requires or ()]
    return set(found)


@pytest.fixture(scope="module")
def shared():
    """Name the folders that several distributions fill, such as those of namespaces."""
    owners = Counter(
        top for each in distributions() for top in {path.parts[0] for path in each.files or ()}
    )
    return {top for top, count in owners.items() if count > 1}


@pytest.fixture
def run(metadata, empty, shared, tmp_path):
    """Run Python in the environment of some extras, without ``without``, and give what it did."""

    def start(program, *extras, without=(), command=()):
        links = tmp_path / "-".join(("links", *extras, *without))
        for name in needed(metadata, extras) - set(without) if not links.exists() else ():
            for path in distribution(name).files:
                top = path.parts[0]
                whole = path if top in shared else Path(top)
                link = links / whole
                if top in ("..", "__pycache__") or link.is_symlink():
                    continue
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(LIBRARIES / whole)
        place = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "LAYLINE_CACHE": str(tmp_path / "cache"),
            "PYTHONPATH": str(links),
            "OMP_NUM_THREADS": "1",
        }
        words = (
            [*command] if command else ["-W", "error::DeprecationWarning:layline", "-c", program]
        )
        python = str(empty / "bin" / "python")
        return subprocess.run(
            [python, *(["-m", "layline"] if command else []), *words],
            cwd=tmp_path,
            env=place,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return start


def last_line(result):
    return (result.stderr.strip().splitlines() or [""])[-1]


CORE = """
import numpy as np, torch, layline
from sklearn.model_selection import cross_val_score
from layline import OrdinalClassifier, heads, metrics, negative_mae

rng = np.random.default_rng(0)
X = rng.normal(size=(80, 4)); y = np.digitize(X[:, 0], [-0.5, 0.5])
model = OrdinalClassifier(epochs=20, random_state=0).fit(X, y)
assert metrics.mean_absolute_error(y, model.predict(X)) < 0.5
low, high = model.predict_range(X, coverage=0.8)
assert (low <= high).all()
assert cross_val_score(OrdinalClassifier(epochs=2), X, y, cv=2, scoring=negative_mae).shape == (2,)

missing = {}
features, ranks = torch.randn(8, 6), torch.arange(8) % 4
for name in layline.names():
    try:
        head = heads.create(name, 4, 6)
    except ImportError as error:
        missing[name] = str(error)
        continue
    head(features, ranks).backward()
    assert torch.allclose(head(features).exp().sum(1), torch.ones(8))
assert missing == {
    "gp-dnnor": "gp-dnnor needs gpytorch: pip install layline[gp]",
    "proxy-anchor": "proxy-anchor needs pytorch_metric_learning: pip install layline[metric]",
    "soft-triple": "soft-triple needs pytorch_metric_learning: pip install layline[metric]",
}, missing
for name in ("train", "evaluate", "compare", "load"):
    try:
        getattr(layline, name)
    except ImportError as error:
        assert str(error).endswith("pip install layline[images]"), error
    else:
        raise AssertionError(name)
print(layline.__version__, layline.__file__)
"""


def test_without_extras_the_estimator_and_the_heads_work(run, metadata, empty):
    result = run(CORE)
    assert result.returncode == 0, result.stderr
    version, _, place = result.stdout.strip().partition(" ")
    assert version == metadata["Version"] == layline.__version__
    assert Path(place).is_relative_to(empty)


def test_without_extras_the_command_says_what_to_install(run):
    for words in (
        ["train", "photo-quality"],
        ["predict", "runs/x", "y"],
        ["bench", "photo-quality"],
    ):
        result = run("", command=words)
        assert result.returncode == 1
        assert re.fullmatch(
            r"layline: this command needs \w+: pip install layline\[images\]", last_line(result)
        )


SMALL = """
import layline
def train(source="photo-quality", **given):
    few = {"per_class": 12, "size": 32} if source == "photo-quality" else {}
    given = {"epochs": 1, "dim": 4, "device": "cpu", "workers": 0} | given
    return layline.train(source, out="run", settings={"data": {"options": few}}, **given)
"""

# One real use of each extra, and of what is left where it is missing.
USES = {
    "images": SMALL
    + """
run = train(features="convnet")
assert 0 <= run.metrics["accuracy"] <= 1
from PIL import Image
Image.new("RGB", (40, 40), "red").save("red.png")
assert layline.load("run").predict("red.png")[0] in layline.load("run").classes
""",
    "gp": """
import torch
from layline import heads
heads.create("gp-dnnor", 4, 6)(torch.randn(8, 6), torch.arange(8) % 4).backward()
""",
    "metric": """
import torch
from layline import heads
for name in ("proxy-anchor", "soft-triple"):
    heads.create(name, 4, 6)(torch.randn(8, 6), torch.arange(8) % 4).backward()
""",
}


@pytest.mark.parametrize("extra", USES)
def test_an_extra_brings_what_its_use_needs(run, extra):
    result = run(USES[extra], extra)
    assert result.returncode == 0, result.stderr


def test_a_library_that_is_not_declared_is_found(run):
    """The check of the check: without one of the libraries that ``images`` names, its use fails."""
    result = run(USES["images"], "images", without=("pydantic",))
    assert result.returncode == 1
    assert last_line(result) == (
        "ImportError: layline.train needs pydantic: pip install layline[images]"
    )
