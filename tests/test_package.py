import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import layline

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", layline.__all__)
def test_every_public_name_is_there(name):
    assert getattr(layline, name) is not None
    assert name in dir(layline)
    is_module = isinstance(getattr(layline, name), ModuleType)
    assert is_module == (name in ("geometry", "heads", "metrics", "scorers"))


def test_the_version_stands_in_one_place_and_the_others_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in project["project"]["dynamic"]  # tests/test_wheel.py has what is built
    assert project["tool"]["hatch"]["version"]["path"] == "src/layline/__init__.py"
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {layline.__version__}\n" in cited
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[(.*?)\]( - \d{4}-\d\d-\d\d)?$", changes, flags=re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    assert headings[1][0] == layline.__version__
    assert headings[1][1]


def test_the_readme_of_an_index_has_no_link_into_the_repository():
    shown = runpy.run_path(str(ROOT / "hatch_build.py"))["index_readme"]
    readme = shown((ROOT / "README.md").read_text(encoding="utf-8"))
    assert re.findall(r"\]\((?!https?:|#)", readme) == []
    assert readme.startswith("# Layline\n")
    assert shown("a [`x`](y.md), [z](https://z) b") == "a `x`, [z](https://z) b"
    assert shown("a\n\n![p](q.png)\n\n*its caption,\nlong*\n\nb") == "a\n\nb"


IMPORT = """
import importlib.metadata, sys, torch
may_ask, entry_points = False, importlib.metadata.entry_points
def watched(**group):
    assert may_ask or "layline" not in str(group), "asked for plug-ins"
    return entry_points(**group)
importlib.metadata.entry_points = watched
torch.manual_seed(1)
before = torch.get_rng_state()
import layline
assert torch.equal(before, torch.get_rng_state()), "drew random numbers"
heavy = {"sklearn", "scipy", "pandas", "matplotlib", "timm", "plotly"} & set(sys.modules)
assert not heavy, heavy
layline.create("arc", 3, 4)
may_ask = True
layline.heads.names()
import layline.backbones, layline.backbones.weights
layline.backbones.names()
layline.backbones.create("convnet", 2)
heavy = {"timm", "torchvision", "PIL", "safetensors"} & set(sys.modules)
assert not heavy, heavy
import layline.evaluation.evaluate
assert "scipy.stats" not in sys.modules  # a prediction does not wait for statistics
"""

HELP = """
import sys
from typer.testing import CliRunner
from layline.cli import app
assert CliRunner().invoke(app, ["--help"]).exit_code == 0
heavy = {"torch", "numpy", "pandas", "sklearn", "scipy", "pydantic"} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.parametrize("program", [IMPORT, HELP], ids=["import", "help"])
def test_importing_is_quiet_and_brings_only_what_is_needed(program):
    """No random numbers, no plug-ins, nothing heavy for a head or for the help."""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
