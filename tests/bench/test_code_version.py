"""The version of the code follows from what it does, not from how it is written."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import layline
from layline.bench.code_version import NO_NUMBERS, code_version, run_modules
from layline.utils.source_code import hash_modules, meaning

ROOT = Path(layline.__file__).parent
SOURCE = '''
"""What it is."""
RATE = 0.001

def step(x: float, by: float = 2.0) -> float:
    """Make a step."""
    if x < 0:
        raise ValueError(f"x must be at least 0, got {x}: lower the rate")
    assert by, "by must not be 0"
    say(f"a step by {by}")
    return x * RATE + by
'''


def hashed(source: str) -> str:
    return meaning(ast.parse(source))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"""What it is."""', '"""What else it is."""'),
        ('    """Make a step."""\n', ""),
        ("RATE = 0.001", "RATE = 0.001  # as in the paper"),
        ("RATE = 0.001", "RATE = 1e-3"),
        ("x * RATE + by", "(x * RATE) + by"),
        ("x: float, by: float = 2.0", "x: float,\n    by: float = 2.0,\n"),
        ("at least 0, got {x}: lower the rate", "positive, got {x!r}: take another"),
        ('f"x must be at least 0, got {x}: lower the rate"', '"wrong"'),
        ("by must not be 0", "by is 0"),
        ("a step by {by}", "one step"),
    ],
)
def test_what_is_only_text_does_not_matter(before, after):
    assert before in SOURCE
    assert hashed(SOURCE.replace(before, after)) == hashed(SOURCE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("0.001", "0.002"),
        ("by: float = 2.0", "by: float = 3.0"),
        ("RATE + by", "RATE - by"),
        ("x < 0", "x <= 0"),
        ("ValueError", "TypeError"),
        ("    assert by", "    assert x"),
        ("    say(", "    tell("),
        ("return x", "x = abs(x)\n    return x"),
        ("x * RATE + by", "by + x * RATE"),
    ],
)
def test_what_is_done_does(before, after):
    assert before in SOURCE
    assert hashed(SOURCE.replace(before, after)) != hashed(SOURCE)


def test_a_text_that_is_computed_with_counts():
    assert hashed("mode = 'mean'") != hashed("mode = 'sum'")
    assert hashed("f(mode='mean')") != hashed("f(mode='sum')")


def test_what_only_some_versions_of_python_have_in_their_trees_is_left_out():
    """From 3.12 on functions and classes have type parameters, mostly none."""
    old = ast.parse(SOURCE)
    for node in ast.walk(old):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.type_params = []
    assert meaning(old) == hashed(SOURCE)


@pytest.fixture
def copy(tmp_path):
    """A copy of the package, to be changed."""
    shutil.copytree(ROOT, tmp_path / "layline", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "layline"


def test_only_modules_that_compute_count(copy):
    def change(*names):
        for name in names:
            path = copy / name
            path.write_text(path.read_text() + "\nEXTRA = 1\n")
        return run_modules(copy)

    before = run_modules(copy)
    shown = ("training/display.py", "prediction_file.py", "diagnostics/rates.py", "__init__.py")
    later = (
        "cli/bench.py",
        "reports/run.py",
        "experiments/tables.py",
        "estimator/classifier.py",
        "api.py",
    )
    assert hash_modules(change(*shown, *later)) == hash_modules(before)
    computing = (
        *("heads/constrained_proxies.py", "geometry/layouts/linear.py", "heads/__init__.py"),
        *("training/loop.py", "training/run.py", "training/config.py", "data/splits.py"),
        *("data/sources/folder.py", "features/convnet.py", "metrics.py", "calibration.py"),
    )
    after = change(*computing)
    for name in computing:
        module = "layline." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert hash_modules({module: after[module]}) != hash_modules({module: before[module]}), name
    assert hash_modules(before | {module: after[module]}) != hash_modules(before)  # one is enough


@pytest.mark.slow
def test_nothing_that_a_run_imports_is_forgotten():
    program = """
import io, sys, tempfile
from pathlib import Path
from rich.console import Console
from layline.training.recipes import resolve_config
from layline.training.run import train
from layline.training.run_folder import RunFolder
given = {"data": {"source": "photo-quality", "options": {"per_class": 4, "size": 16}},
         "backbone": {"name": "convnet", "options": {"channels": 4}}, "head": {"dim": 4},
         "training": {"epochs": 1, "device": "cpu"}, "report": {"enabled": False}}
folder = RunFolder(Path(tempfile.mkdtemp()) / "run")
train(resolve_config(given), folder, Console(file=io.StringIO()))
print(*(name for name in sys.modules if name.split(".")[0] == "layline"))
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported = set(said.stdout.split())
    assert len(imported) > 50
    assert imported - set(run_modules(ROOT)) - set(NO_NUMBERS) == set()


def test_every_module_that_is_left_out_is_there():
    for name in NO_NUMBERS:
        place = ROOT.joinpath(*name.split(".")[1:])
        assert place.with_suffix(".py").is_file() or (place / "__init__.py").is_file(), name


def test_the_version_names_the_package_and_its_code():
    package, _, code = code_version().partition("+")
    assert package == layline.__version__
    assert code == hash_modules(run_modules(ROOT))


@pytest.mark.slow
def test_the_version_is_the_same_without_assertions():
    program = "from layline.bench.code_version import code_version; print(code_version())"
    said = subprocess.run(
        [sys.executable, "-O", "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == code_version()
