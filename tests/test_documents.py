"""What the documents show is true."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from PIL import Image

from layline import data, geometry, heads, names
from layline.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
METHOD = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")


PYTHON = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_of_the_readme_runs():
    rng = np.random.default_rng(0)
    place = {
        "X": rng.normal(size=(60, 4)),
        "y": np.array(["low", "mid", "high"])[np.arange(60) % 3],
        "X_new": rng.normal(size=(5, 4)),
        "x": torch.randn(32, 20),
        "ranks": torch.arange(32) % 8,
    }
    blocks = [block for block in PYTHON if "layline.train(" not in block]
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "README.md", "exec"), place)


def without_numbers(text):
    """What stays the same on another processor: words, and where numbers are."""
    return re.sub(r"[-+]?\d+(\.\d+)?|\s+", " ", text).split()


@pytest.mark.slow
def test_the_page_on_scikit_learn_prints_what_it_shows():
    text = (ROOT / "docs" / "scikit-learn.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == text.count("```python") > 5
    end = "end of a block"
    code = "".join(f"{code}\nprint({end!r})\n" for code, _ in blocks)
    # a process of its own: its threads must not be there when a later test starts workers
    done = subprocess.run(
        [sys.executable, "-"], input=code, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for printed, (_, shown) in zip(done.stdout.split(end), blocks, strict=False):
        assert without_numbers(printed) == without_numbers(shown)


@pytest.mark.slow
def test_the_call_of_the_readme_trains(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0)
    for name in ("mild", "moderate", "severe"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(12):
            image = Image.fromarray(pixels.integers(0, 255, (32, 32, 3), dtype=np.uint8))
            image.save(tmp_path / "photos" / name / f"{number}.png")
    image.save("new.jpg")
    (block,) = (block for block in PYTHON if "layline.train(" in block)
    place = {}
    exec(compile(block, "README.md", "exec"), place)
    assert place["run"].report.exists()
    assert place["run"].model.predict(["new.jpg"])[0] in ("mild", "moderate", "severe")


@pytest.mark.parametrize("name", names())
def test_the_readme_lists_every_method_with_its_summary(name):
    assert f"| `{name}` | {heads.HEADS[name].summary} |" in README


@pytest.mark.parametrize("name", names())
def test_every_method_has_its_paragraph(name):
    assert f"**`{name}`**" in (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", data.names())
def test_every_source_has_its_paragraph(name):
    assert f"`{name}`" in (ROOT / "docs" / "data.md").read_text(encoding="utf-8")


def commands() -> list[list[str]]:
    """Every ``layline …`` that stands in the documents, in a block or in backquotes."""
    texts = [README, *(path.read_text(encoding="utf-8") for path in ROOT.glob("docs/**/*.md"))]
    found = set()
    for text in texts:
        text = text.replace("\\\n", " ")
        found |= set(
            re.findall(r"(?:^|-m |`)layline ((?:[a-z].*?)?)(?:`|\s#.*|$)", text, re.MULTILINE)
        )
    return sorted(command.split() for command in found if command)


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_in_the_documents_exists_with_its_options(words):
    command = typer.main.get_command(app)
    context = command.make_context("layline", ["methods"], resilient_parsing=True)
    while words and isinstance(getattr(command, "commands", None), dict):
        command = command.commands[words.pop(0)]
    options = {option for parameter in command.get_params(context) for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_commands_of_the_readme_are_targets_of_the_makefile(target):
    assert f"make {target}" in README
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def homes():
    """(number, file, function) of every equation, as the table says."""
    rows = re.findall(
        r"^\| ((?:\(\d+\) )+)\|.*\| `(\S+)` · `([\w.]+)` \|", METHOD, flags=re.MULTILINE
    )
    return [(int(n), *place) for cell, *place in rows for n in re.findall(r"\d+", cell)]


def documented(file):
    """The docstring of every class and function of a file, by its name within the file."""

    def walk(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef):
                name = f"{prefix}{child.name}"
                yield name, ast.get_docstring(child) or ""
                yield from walk(child, f"{name}.")

    return dict(walk(ast.parse(file.read_text(encoding="utf-8")), ""))


def test_the_table_of_equations_is_complete():
    assert [number for number, _, _ in homes()] == list(range(1, 22))


@pytest.mark.parametrize(("number", "file", "function"), homes())
def test_an_equation_is_where_the_table_says_and_nowhere_else(number, file, function):
    package = ROOT / "src" / "layline"
    named = re.compile(rf"equations? (?:\(\d+\) and )?\({number}\)", flags=re.IGNORECASE)
    found = [
        (str(source.relative_to(package)), name)
        for source in package.rglob("*.py")
        for name, docstring in documented(source).items()
        if named.search(docstring)
    ]
    assert found == [(file, function)]


@pytest.mark.parametrize(
    "document",
    ["README.md", "CONTRIBUTING.md", "docs/method.md", "docs/methods.md", "docs/scikit-learn.md"],
)
def test_links_between_documents_lead_somewhere(document):
    path = ROOT / document
    for link in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        if not link.startswith("http"):
            assert (path.parent / link).exists(), link


def test_contributing_names_the_registries_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for registry in ("LAYOUTS", "SIMILARITIES", "SMOOTHINGS"):
        assert f"`{registry}`" in text
        assert getattr(geometry, registry)
    assert "`HEADS`" in text
