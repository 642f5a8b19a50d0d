"""The wheel in environments that contain only what its metadata require.

Installing torch ten times would cost gigabytes, so the wheel is unpacked into a folder, and Python
is started with a finder that hides all libraries which an installer would not add for some extras:
the use of one that is not declared fails.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import layline

ROOT = Path(__file__).parents[1]

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
def packages(wheel, tmp_path_factory):
    """A folder with the content of the wheel."""
    folder = tmp_path_factory.mktemp("packages")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def metadata(packages):
    (path,) = packages.glob("*.dist-info/METADATA")
    return HeaderParser().parsestr(path.read_text(encoding="utf-8"))


def hidden(metadata, extras, without=()):
    """List the modules that an installer would not add for some extras of the wheel."""
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
    kept = set(found) - set(without)
    owners = packages_distributions().items()
    return [top for top, names in owners if not kept & {canonicalize_name(name) for name in names}]


FINDER = """
import importlib.machinery, json, os, sys

hidden = set(json.loads(os.environ["HIDDEN"]))

class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in hidden else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Finder
"""


@pytest.fixture
def run(packages, metadata, tmp_path):
    """Run a program in the environment of some extras."""

    def start(program, *extras, without=()):
        environment = {
            **{"PATH": os.environ["PATH"], "PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"},
            **{"HOME": str(tmp_path), "LAYLINE_CACHE": str(tmp_path / "cache")},
            "HIDDEN": json.dumps(hidden(metadata, extras, without)),
        }
        command = [sys.executable, "-c", FINDER + program]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return start


CORE = """
import re
import numpy as np, torch, layline
from sklearn.model_selection import cross_val_score
from layline import OrdinalClassifier, heads, metrics, scorers

rng = np.random.default_rng(0)
X = rng.normal(size=(80, 4)); y = np.digitize(X[:, 0], [-0.5, 0.5]); X[3, 1] = np.nan
model = OrdinalClassifier(epochs=20, calibration_fraction=0.2, random_state=0).fit(X, y)
assert metrics.mean_absolute_error(y, model.predict(X)) < 0.5
low, high = model.predict_range(X, coverage=0.8)
assert (low <= high).all()
scoring = scorers.neg_mean_absolute_error
assert cross_val_score(OrdinalClassifier(epochs=2), X, y, cv=2, scoring=scoring).shape == (2,)

features, ranks = torch.randn(8, 6), torch.arange(8) % 4
for name in layline.names():
    head = heads.create(name, 4, 6)
    head(features, ranks).backward()
    assert torch.allclose(head(features).exp().sum(1), torch.ones(8))
for name in ("train", "evaluate", "load"):
    try:
        getattr(layline, name)
    except ImportError as error:
        assert str(error).endswith("pip install layline[images]"), error
    else:
        raise AssertionError(name)

from typer.testing import CliRunner
from layline.cli import app
for words in ("train photo-quality", "predict runs/x y", "bench photo-quality"):
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 1
    sentence = result.stderr.strip()
    cure = r"layline: .* needs \\w+: pip install layline\\[(images|report)\\]"
    assert re.fullmatch(cure, sentence), sentence
print(layline.__version__, layline.__file__)
"""


def test_without_extras_estimator_and_heads_work_and_the_command_says_what_it_needs(
    run, metadata, packages
):
    result = run(CORE)
    assert result.returncode == 0, result.stderr
    version, _, place = result.stdout.strip().partition(" ")
    assert version == metadata["Version"] == layline.__version__
    assert Path(place).is_relative_to(packages)


# What the programs below share: the command in this process, and a small run.
SMALL = """
import sys, warnings
import layline
import numpy as np
from PIL import Image
from pathlib import Path
from typer.testing import CliRunner
from layline.cli import app

def command(line, code=0):
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == code, (line, result.output)
    return result.stderr if code else result.output

def refused(extra, line):
    assert f"pip install layline[{extra}]" in command(line, 1), line

def photographs(ending):
    for rank, name in enumerate(("mild", "moderate", "severe")):
        Path(f"photos{ending}", name).mkdir(parents=True)
        for number in range(12):
            pixels = np.random.default_rng(number).integers(0, 80 * (rank + 1), (32, 32, 3))
            image = Image.fromarray(pixels.astype(np.uint8))
            image.save(Path(f"photos{ending}", name, f"{number}{ending}"))

def train(**given):
    photographs(".png")
    given = {"backbone": "convnet", "epochs": 1, "dim": 4, "workers": 0, "out": "run"} | given
    return layline.train("photos.png", **given)
"""

# One real use of each extra; what it says of those that are missing is in the first.
USES = {
    "images": """
run = train()
assert 0 <= run.metrics["accuracy"] <= 1 and run.report is None
assert layline.load("run").predict("photos.png/mild/0.png")[0] in ("mild", "moderate", "severe")

BUNDLED = "--backbone tf_efficientnet_lite0 --weights bundled --freeze --size 32"
refused("report", "report run")
refused("report", "bench photos.png")
Path("list.xlsx").write_bytes(b"PK")
refused("excel", "data check list.xlsx --label grade")
refused("pretrained", f"train photos.png {BUNDLED} --recipe paper --epochs 1 --out x")
for name in ("mild", "severe"):
    Path("photos.heic", name).mkdir(parents=True)
    Path("photos.heic", name, "a.heic").write_bytes(b"x")
refused("heic", "data check photos.heic")
""",
    "images,report": """
assert "plotly" in train().report.read_text()
command("report run --out again.html")
refused("cluster", "bench photos.png --methods arc --seeds 1 --dask tcp://127.0.0.1:1")
""",
    "heic,excel": """
import pandas, pillow_heif
pillow_heif.register_heif_opener()
photographs(".heic")
assert "36" in command("data check photos.heic")
pandas.DataFrame({"a": range(30), "grade": [1, 2, 3] * 10}).to_excel("list.xlsx", index=False)
assert "30" in command("data check list.xlsx --label grade")
""",
    "pretrained": """
network = {"backbone": "tf_efficientnet_lite0", "weights": "bundled", "freeze": True, "size": 32}
run = train(**network, recipe="paper")
assert run.model.predict("photos.png/mild/0.png").shape == (1,)
""",
    "images,cluster": """
import distributed, joblib
with distributed.LocalCluster(1, 1, processes=False, dashboard_address=None) as cluster:
    with distributed.Client(cluster), joblib.parallel_backend("dask"):
        assert joblib.Parallel()(joblib.delayed(abs)(-n) for n in range(3)) == [0, 1, 2]
""",
    "export": """
train(recipe="paper")
command("export run --out model.onnx")
assert "photos.png/mild/0.png" in command("predict model.onnx photos.png/mild/0.png")
""",
    "serve": """
import base64, json, threading, time, urllib.request
import uvicorn
from layline.serve import create_app
train(recipe="paper")
server = uvicorn.Server(uvicorn.Config(create_app("run"), port=0, log_level="error"))
thread = threading.Thread(target=server.run)
thread.start()
while not server.started:
    time.sleep(0.05)
try:
    url = "http://127.0.0.1:%d" % server.servers[0].sockets[0].getsockname()[1]
    assert b"<html" in urllib.request.urlopen(url).read()
    image = base64.b64encode(Path("photos.png/mild/0.png").read_bytes()).decode()
    body = json.dumps({"images": [{"data": image}]}).encode()
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + "/predict/json", body, kind)
    assert b"moderate" in urllib.request.urlopen(request).read()
finally:
    server.should_exit = True
    thread.join()
""",
}


@pytest.mark.parametrize("extras", USES)
def test_an_extra_brings_what_its_use_needs(run, extras):
    result = run(SMALL + USES[extras], *extras.split(","))
    assert result.returncode == 0, result.stderr


def test_a_library_that_is_not_declared_is_found(run):
    """The check of the check: without one of the libraries that ``images`` names, its use fails."""
    result = run(SMALL + USES["images"], "images", without=("tomli-w",))
    assert result.returncode == 1
    assert "tomli_w" in result.stderr.strip().splitlines()[-1]


def test_every_extra_is_used_here_and_documents_name_no_other(metadata):
    extras = set(metadata.get_all("Provides-Extra"))
    used = {extra for extras in USES for extra in extras.split(",")}
    assert extras - used == {"dev"}
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/layline/**/*.py")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    named = set(",".join(re.findall(r"(?:layline|\"\.)\[([a-z,]+)\]", text)).split(","))
    assert {"images", "report"} <= named <= extras


def test_the_wheel_and_the_sdist_have_the_files_they_need(wheel):
    package = ROOT / "src"
    tracked = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == tracked
    assert {"layline/py.typed", "layline/reports/templates/page.html"} <= held
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"tests/test_wheel.py", "mkdocs.yml", "docs/index.md", "examples/table.py"} <= held
    assert {"results/edition-3/results.csv", "requirements.lock", "CITATION.cff"} <= held
