"""What the documents show is true."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from PIL import Image

import layline
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
    monkeypatch.setattr(layline, "train", partial(layline.train, epochs=2, size=64))  # to be quick
    (block,) = (block for block in PYTHON if "layline.train(" in block)
    place = {}
    exec(compile(block, "README.md", "exec"), place)
    assert place["run"].report.exists()
    assert place["run"].model.predict(["new.jpg"])[0] in ("mild", "moderate", "severe")


def test_every_method_is_in_the_readme_with_its_summary_and_has_its_paragraph():
    methods = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    for name in names():
        assert f"| `{name}` | {heads.HEADS[name].summary} |" in README
        assert f"**`{name}`**" in methods


def test_every_source_has_its_paragraph():
    text = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    for name in data.names():
        assert f"`{name}`" in text


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


@cache
def whole_command():
    """What is typed as ``layline``, and a context to ask it for its options."""
    command = typer.main.get_command(app)
    return command, command.make_context("layline", ["methods"], resilient_parsing=True)


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_in_the_documents_exists_with_its_options(words):
    command, context = whole_command()
    while words and isinstance(getattr(command, "commands", None), dict):
        command = command.commands[words.pop(0)]
    options = {option for parameter in command.get_params(context) for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize("target", ["demo", "test", "docs"])
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


def test_every_equation_is_where_the_table_says_and_nowhere_else():
    package = ROOT / "src" / "layline"
    docstrings = {
        (str(source.relative_to(package)), name): docstring
        for source in package.rglob("*.py")
        for name, docstring in documented(source).items()
    }
    for number, *place in homes():
        named = re.compile(rf"equations? (?:\(\d+\) and )?\({number}\)", flags=re.IGNORECASE)
        found = [home for home, docstring in docstrings.items() if named.search(docstring)]
        assert found == [tuple(place)], number


PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted(ROOT.glob("docs/**/*.md"))


def names_of(pages):
    return [page.relative_to(ROOT).as_posix() for page in pages]


@pytest.mark.parametrize("path", PAGES, ids=names_of(PAGES))
def test_links_between_documents_lead_somewhere(path):
    """Anchors, and what the site makes of links, are checked by its build: browser/test_site.py."""
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if not link.startswith("http"):
            assert (path.parent / link).exists(), link


def blocks(path, language):
    """The code of a page, each block with as many empty lines before it as the page has lines."""
    text = path.read_text(encoding="utf-8")
    for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield "\n" * (text.count("\n", 0, match.start()) + 1) + match[1]


@pytest.mark.parametrize("path", PAGES, ids=names_of(PAGES))
def test_code_in_the_documents_can_be_read(path):
    for block in blocks(path, "python"):
        compile(block, str(path), "exec")
    for block in blocks(path, "toml"):
        tomllib.loads(block)
    fences = re.findall(r"^```(.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(fences) % 2 == 0
    assert set(fences[::2]) <= {"", "python", "toml", "text", "json", "bash", "yaml", "html"}
    assert set(fences[1::2]) <= {""}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Make the files that the pages speak of: photographs, tables, and small runs on them."""
    folder = tmp_path_factory.mktemp("documents")
    rng = np.random.default_rng(0)
    for split in ("photos", "new-photos"):
        for rank, name in enumerate(("mild", "moderate", "severe")):
            (folder / split / name).mkdir(parents=True)
            for number in range(24 if split == "photos" else 2):
                pixels = rng.integers(0, 85 * (rank + 1), (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{number}.png")
    for name in ("a.jpg", "b.jpg"):
        Image.fromarray(pixels).save(folder / name)
    for name in ("first", "second"):
        images = rng.integers(0, 255, (60, 16, 16, 3), dtype=np.uint8)
        np.savez(folder / f"{name}.npz", images=images, labels=np.arange(60) % 3)
    small = {"backbone": "convnet", "epochs": 1, "dim": 4, "workers": 0, "verbose": False}
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.chdir(folder)
    for name in ("photos-arc", "cars-arc"):
        layline.train("photos", out=f"runs/{name}", calibration=0.25, **small)
    layline.train("first.npz", out="runs/first-arc", **small)
    layline.evaluate("runs/first-arc", root="second.npz", part="test", out="runs/first-on-second")
    yield folder
    monkeypatch.undo()


@pytest.mark.slow
def test_the_python_of_the_guide_runs(place, monkeypatch):
    train = layline.train

    def quick(*given, **options):  # whatever a page says, but one epoch of a small network
        small = {} if "init_from" in options else {"backbone": "convnet", "dim": 4}
        return train(*given, **small | options | {"epochs": 1, "workers": 0})

    monkeypatch.setattr(layline, "train", quick, raising=False)
    given = {
        "layline": layline,
        "OrdinalClassifier": layline.OrdinalClassifier,
        "X": np.random.default_rng(0).normal(size=(120, 4)),
        "y": np.arange(120) % 3,
        "X_new": np.zeros((5, 4)),
    }
    ran = 0
    for name in ("training", "certainty", "transfer"):
        path = ROOT / "docs" / f"{name}.md"
        for block in blocks(path, "python"):
            exec(compile(block, str(path), "exec"), dict(given))
            ran += 1
    for block in blocks(ROOT / "CONTRIBUTING.md", "python"):
        found = dict(given)
        exec(compile(block, "CONTRIBUTING.md", "exec"), found)
        head = layline.ConstrainedProxies(found["QuarterCircle"](8, 16), geometry.Cosine())
        assert head(torch.randn(4, 16)).shape == (4, 8)
        ran += 1
    assert ran == 5


def test_the_gallery_shows_the_commands_that_make_it():
    tree = ast.parse((ROOT / "docs" / "_site" / "made_pages.py").read_text(encoding="utf-8"))
    (gallery,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "GALLERY"
    )
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for name, (commands, _) in gallery.items():
        assert f"```\n{commands}\n```\n" in page
        assert f"(images/gallery/{name}.png)" in page


def test_contributing_names_the_registries_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for registry in ("LAYOUTS", "SIMILARITIES", "SMOOTHINGS"):
        assert f"`{registry}`" in text
        assert getattr(geometry, registry)
    assert "`HEADS`" in text
