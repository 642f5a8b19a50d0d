"""The commands, code, links and tables in the documents are true."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from PIL import Image

import layline
from layline import data, geometry, heads
from layline.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted(ROOT.glob("docs/**/*.md"))
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name, language):
    """The code blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", read(name), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_links_and_code_blocks_are_valid(name):
    text = read(name)
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert link.startswith("http") or ((ROOT / name).parent / link).exists(), link
    for block in blocks(name, "python"):
        compile(block, name, "exec")
    for block in blocks(name, "toml"):
        tomllib.loads(block)
    fences = re.findall(r"^```(.*)$", text, flags=re.MULTILINE)
    assert len(fences) % 2 == 0
    assert set(fences[1::2]) <= {""}


def commands():
    """Every ``layline …`` in the documents, in a block or in backquotes."""
    found = set()
    for page in PAGES:
        if page.name != "CHANGELOG.md":  # which names options of earlier versions
            text = page.read_text(encoding="utf-8").replace("\\\n", " ")
            pattern = r"(?:^|-m |`)layline ((?:[a-z].*?)?)(?:`|\s#.*|$)"
            found |= set(re.findall(pattern, text, re.MULTILINE))
    return sorted(command.split() for command in found if command)


@cache
def command_line():
    command = typer.main.get_command(app)
    return command, command.make_context("layline", ["methods"], resilient_parsing=True)


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_exists_with_its_options(words):
    (command, context), words = command_line(), list(words)
    while words and isinstance(getattr(command, "commands", None), dict):
        command = command.commands[words.pop(0)]
    options = {option for parameter in command.get_params(context) for option in parameter.opts}
    assert {word.split("=")[0] for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize("target", ["demo", "test", "docs"])
def test_the_commands_of_the_readme_are_targets_of_the_makefile(target):
    assert f"make {target}" in read("README.md")
    assert re.search(rf"^{target}:", read("Makefile"), flags=re.MULTILINE)


def test_every_method_and_source_is_documented():
    for name in heads.names():
        assert f"| `{name}` | {heads.HEADS[name].summary} |" in read("README.md")
        assert f"**`{name}`**" in read("docs/methods.md")
    for name in data.names():
        assert f"`{name}`" in read("docs/data.md")
    for registry in ("LAYOUTS", "SIMILARITIES", "SMOOTHINGS"):
        assert f"`{registry}`" in read("CONTRIBUTING.md")
        assert getattr(geometry, registry)


def docstrings(path):
    """The docstring of every class and function of a file, by its name within the file."""

    def walk(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                yield f"{prefix}{child.name}", ast.get_docstring(child) or ""
                yield from walk(child, f"{prefix}{child.name}.")

    return dict(walk(ast.parse(path.read_text(encoding="utf-8")), ""))


def test_every_equation_is_in_exactly_the_function_that_the_table_names():
    pattern = r"^\| ((?:\(\d+\) )+)\|.*\| `(\S+)` · `([\w.]+)` \|"
    rows = re.findall(pattern, read("docs/method.md"), flags=re.MULTILINE)
    homes = [(int(n), *place) for cell, *place in rows for n in re.findall(r"\d+", cell)]
    assert [number for number, *_ in homes] == list(range(1, 22))
    package = ROOT / "src" / "layline"
    texts = {
        (source.relative_to(package).as_posix(), name): text
        for source in package.rglob("*.py")
        for name, text in docstrings(source).items()
    }
    for number, *place in homes:
        named = re.compile(rf"equations? (?:\(\d+\) and )?\({number}\)", flags=re.IGNORECASE)
        assert [home for home, text in texts.items() if named.search(text)] == [tuple(place)]


@pytest.fixture
def small_train(monkeypatch):
    """Make every training in a document short: one epoch of a small network."""
    train = layline.train

    def quick(*given, **options):
        small = {} if "init_from" in options else {"backbone": "convnet", "dim": 4}
        return train(*given, **small | options | {"epochs": 1, "workers": 0, "verbose": False})

    monkeypatch.setattr(layline, "train", quick)
    return quick


@pytest.fixture
def files(small_train, tmp_path, monkeypatch):
    """The files that the pages use: photographs, arrays, and runs on them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for folder, count in (("photos", 24), ("new-photos", 2)):
        for rank, name in enumerate(("mild", "moderate", "severe")):
            (tmp_path / folder / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 85 * (rank + 1), (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / folder / name / f"{number}.png")
    for name in ("a.jpg", "b.jpg", "new.jpg"):
        Image.fromarray(pixels).save(name)
    for name in ("first", "second"):
        images = rng.integers(0, 255, (60, 16, 16, 3), dtype=np.uint8)
        np.savez(f"{name}.npz", images=images, labels=np.arange(60) % 3)
    for name in ("photos", "cars"):
        small_train("photos", out=f"runs/{name}", calibration=0.25)
    small_train("first.npz", out="runs/first")
    layline.evaluate("runs/first", root="second.npz", part="test", out="runs/first-on-second")


@pytest.mark.slow
def test_the_python_of_the_documents_runs(files):
    rng = np.random.default_rng(0)
    given = {
        "layline": layline,
        "OrdinalClassifier": layline.OrdinalClassifier,
        "X": rng.normal(size=(120, 4)),
        "y": np.arange(120) % 3,
        "X_new": np.zeros((5, 4)),
        "x": torch.randn(32, 20),
        "ranks": torch.arange(32) % 8,
    }
    for name in ("README.md", "docs/training.md", "docs/certainty.md", "docs/transfer.md"):
        for block in blocks(name, "python"):
            names = np.array(["low", "mid", "high"])[given["y"]]
            y = names if 'classes=["low"' in block else given["y"]
            exec(compile(block, name, "exec"), given | {"y": y})
    (block,) = blocks("CONTRIBUTING.md", "python")
    exec(compile(block, "CONTRIBUTING.md", "exec"), given)
    head = layline.ConstrainedProxies(given["QuarterCircle"](8, 16), geometry.Cosine())
    assert head(torch.randn(4, 16)).shape == (4, 8)


@pytest.mark.slow
def test_the_page_on_scikit_learn_prints_what_it_shows():
    pattern = r"```python\n(.*?)```\n```text\n(.*?)```"
    text = read("docs/scikit-learn.md")
    pairs = re.findall(pattern, text, flags=re.DOTALL)
    assert len(pairs) == text.count("```python") > 3
    end = "end of a block"
    code = "".join(f"{code}\nprint({end!r})\n" for code, _ in pairs)
    # in its own process: its threads must not exist when a later test starts workers
    result = subprocess.run(
        [sys.executable, "-"], input=code, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr

    def without_numbers(text):  # which differ between processors
        return re.sub(r"[-+]?\d+(\.\d+)?|\s+", " ", text).split()

    for printed, (_, expected) in zip(result.stdout.split(end), pairs, strict=False):
        assert without_numbers(printed) == without_numbers(expected)


def test_the_gallery_shows_the_commands_that_make_it():
    tree = ast.parse(read("docs/_site/made_pages.py"))
    (gallery,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "GALLERY"
    )
    for name, (lines, _) in gallery.items():
        assert f"```\n{lines}\n```\n" in read("docs/gallery.md")
        assert f"(images/gallery/{name}.png)" in read("docs/gallery.md")
