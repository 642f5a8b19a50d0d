"""A cell is known by its configuration, the content of its data, its threads and the code."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from layline.bench import cells as cells_module
from layline.bench.cells import Cell, with_content
from layline.bench.code_version import code_version
from layline.bench.grid import Grid
from layline.bench.paper.presets import PRESETS
from layline.bench.results import read_outcomes
from layline.bench.store import Outcome, Store


def changed(cell: Cell, **sections: dict) -> Cell:
    config = cell.config
    update = {
        name: getattr(config, name).model_copy(update=values) for name, values in sections.items()
    }
    return Cell(config.model_copy(update=update), cell.labels, cell.threads)


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("training", {"epochs": 4}),
        ("training", {"seed": 9}),
        ("training", {"learning_rate": 0.5}),
        ("head", {"method": "sord"}),
        ("head", {"options": {"norm": 3.0}}),
        ("data", {"partition": 5}),
        ("data", {"options": {"label": "other"}}),
        ("backbone", {"options": {"width": 3}}),
    ],
)
def test_what_changes_numbers_changes_the_key(grid, section, values):
    cell = grid.cells()[0]
    assert changed(cell, **{section: values}).key != cell.key


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("training", {"checkpoint_minutes": 1.0}),
        ("data", {"workers": 3}),
        ("data", {"cache": True}),  # of images in files only
        ("data", {"verify": True}),
        ("report", {"review": 3}),
    ],
)
def test_what_changes_no_number_does_not_change_the_key(grid, section, values):
    cell = grid.cells()[0]
    assert changed(cell, **{section: values}).key == cell.key


def test_threads_and_the_version_are_part_of_the_key_and_labels_are_not(grid, monkeypatch):
    cell = grid.cells()[0]
    assert Cell(cell.config, {"data": "another name"}, cell.threads).key == cell.key
    assert Cell(cell.config, cell.labels, cell.threads + 1).key != cell.key
    monkeypatch.setattr(cells_module, "code_version", lambda: "another")
    again = Cell(cell.config, cell.labels, cell.threads)
    assert again.config_hash == cell.config_hash
    assert again.key != cell.key


def test_a_configuration_keeps_its_hash_so_that_results_of_earlier_versions_are_found():
    cell = PRESETS["small"].cell("historical-color", 0, "hard-linear", {}, {})
    assert cell.config_hash == "09d3149f2e83db3c"


@pytest.mark.parametrize(
    ("section", "values"),
    [("training", {"clip": 1.0}), ("training", {"ema": 0.9}), ("data", {"crop": 0.9})],
)
@pytest.mark.parametrize("recipe", ["paper", "modern"])
def test_a_setting_that_came_later_counts_where_it_is_set(tree, recipe, section, values):
    cell = Grid.model_validate({**tree, "recipes": [recipe]}).cells()[0]
    (name,) = values
    before = getattr(getattr(cell.config, section), name)
    assert (changed(cell, **{section: values}).key != cell.key) == (before != values[name])


@pytest.mark.slow
def test_another_process_gives_the_same_key(grid, tmp_path):
    file = tmp_path / "grid.toml"
    file.write_text(grid.to_toml())
    program = (
        "import sys; from pathlib import Path; from layline.bench.grid import read_grid;"
        "print(*(c.key for c in read_grid(Path(sys.argv[1])).cells()))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == [cell.key for cell in grid.cells()]


def test_a_file_is_known_by_its_content(tree, tmp_path, ratings):
    def keys(path):
        tree["data"][0]["root"] = str(path)
        return [cell.key for cell in Grid.model_validate(tree).cells()]

    before = keys(ratings)
    moved = tmp_path / "moved.csv"
    moved.write_bytes(ratings.read_bytes())
    assert keys(moved) == before
    moved.write_text(ratings.read_text().replace("0.1", "0.2"))
    assert not set(keys(moved)) & set(before)


@pytest.fixture
def photographs(tmp_path):
    """Six small images in two class folders, and a list of them."""
    rng = np.random.default_rng(0)
    lines = []
    for name in ("bad", "good"):
        (tmp_path / "photographs" / name).mkdir(parents=True)
        for number in range(3):
            file = tmp_path / "photographs" / name / f"{number}.png"
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(file)
            lines.append(f"{name}/{number}.png,{name}")
    (tmp_path / "list.csv").write_text("path,label\n" + "\n".join(lines) + "\n")
    return tmp_path / "photographs"


def keys(source, root, **options) -> set[str]:
    entry = {"name": "a", "source": source, "root": str(root), "options": options}
    return {
        cell.key for cell in Grid.model_validate({"data": [entry], "methods": ["sord"]}).cells()
    }


def swap(folder):
    (folder / "bad").rename(folder / "x")
    (folder / "good").rename(folder / "bad")
    (folder / "x").rename(folder / "good")


def repaint(folder):
    Image.new("RGB", (8, 8), "red").save(folder / "bad" / "1.png")


CHANGES = {
    "classes swapped": swap,
    "an image deleted": lambda folder: (folder / "bad" / "1.png").unlink(),
    "an image changed": repaint,
    "an image renamed": lambda folder: (folder / "bad" / "1.png").rename(folder / "bad" / "9.png"),
    "an image added": lambda folder: shutil.copy(folder / "bad" / "1.png", folder / "good/9.png"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_folder_is_known_by_its_content(photographs, change):
    before = keys("folder", photographs)
    change(photographs)
    assert not keys("folder", photographs) & before


def test_a_folder_may_be_moved_copied_and_touched(photographs, tmp_path):
    before = keys("folder", photographs)
    os.utime(photographs / "bad" / "0.png", (1, 1))
    assert keys("folder", photographs) == before
    shutil.copytree(photographs, tmp_path / "copied")
    assert keys("folder", tmp_path / "copied") == before
    photographs.rename(tmp_path / "moved")
    assert keys("folder", tmp_path / "moved") == before


def test_a_cache_counts_where_crops_are_cut_from_it(photographs):
    """It keeps smaller images than the files are, but for a frozen network the same ones."""
    entry = {"name": "a", "source": "folder", "root": str(photographs)}
    (cell,) = Grid.model_validate({"data": [entry], "methods": ["sord"]}).cells()
    assert not cell.config.backbone.freeze
    assert changed(cell, data={"cache": not cell.config.data.cache}).key != cell.key
    frozen = changed(cell, features={"freeze": True})
    assert changed(frozen, data={"cache": not cell.config.data.cache}).key == frozen.key


@pytest.mark.parametrize("change", ["image", "label"])
def test_a_list_of_images_is_known_with_them(photographs, tmp_path, change):
    file = tmp_path / "list.csv"
    before = keys("csv", file, images=str(photographs))
    if change == "image":
        repaint(photographs)
    else:
        file.write_text(file.read_text().replace("bad/1.png,bad", "bad/1.png,good"))
    assert not keys("csv", file, images=str(photographs)) & before


def test_a_list_and_its_images_may_be_moved(photographs, tmp_path):
    before = keys("csv", tmp_path / "list.csv", images=str(photographs))
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "list.csv", tmp_path / "elsewhere" / "list.csv")
    photographs.rename(tmp_path / "elsewhere" / "images")
    moved = tmp_path / "elsewhere"
    assert keys("csv", moved / "list.csv", images=str(moved / "images")) == before


def test_the_data_of_a_grid_are_looked_at_once(photographs, ratings, monkeypatch):
    looked, digest = [], cells_module.content_digest

    def counted(source, root, options):
        looked.append(source)
        return digest(source, root, options)

    monkeypatch.setattr(cells_module, "content_digest", counted)
    data = [
        {"name": "a", "source": "folder", "root": str(photographs)},
        {"name": "b", "source": "table", "root": str(ratings), "options": {"label": "grade"}},
    ]
    cells = Grid.model_validate({"data": data, "methods": ["sord", "coral"], "seeds": [0, 1, 2]})
    assert len({cell.key for cell in cells.cells()}) == 12
    assert looked == ["folder", "table"]


def test_long_work_is_said(grid, monkeypatch):
    said, cells = [], [replace(cell, data=None) for cell in grid.cells()[:2]]
    monkeypatch.setattr(cells_module, "_LONG", 0.0)
    wait = cells_module.threading.Event()
    monkeypatch.setattr(cells_module, "content_digest", lambda *_: str(wait.wait(60)))

    def say(text):
        said.append(text)
        wait.set()

    assert [cell.content for cell in with_content(cells, say)] == ["True", "True"]
    (sentence,) = said
    assert sentence.startswith("Reading the data in ")


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:3"])
def test_which_gpu_it_is_does_not_change_the_key(grid, device):
    cell = grid.cells()[0]
    assert changed(cell, training={"device": device}).key == (
        changed(cell, training={"device": "cuda:1"}).key
    )
    assert changed(cell, training={"device": device}).key != cell.key


def finished(cell, **others):
    numbers = {"mode": {"mae": 0.5}}
    return Outcome(**{**Outcome.about(cell), "numbers": numbers, **others})


DAMAGE = {
    **{text: text for text in ("[]", "{}", "", "null", "3", '"text"', "{\x00", '{"wanted": ')},
    "other types": json.dumps({"wanted": 1, "version": [], "numbers": "none"}),
    "no numbers": json.dumps({"wanted": "{hash}", "version": "1"}),
    "numbers of another kind": json.dumps({"wanted": "{hash}", "version": "1", "numbers": [1]}),
    "empty numbers": json.dumps({"wanted": "{hash}", "version": "1", "numbers": {"mode": {}}}),
    "text for a number": json.dumps(
        {"wanted": "{hash}", "version": "1", "numbers": {"mode": {"mae": "low"}}}
    ),
    "of another cell": json.dumps({"wanted": "x", "version": "1", "error": "y"}),
}


@pytest.mark.parametrize("text", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_outcome_is_none(grid, tmp_path, text, go):
    small = grid.model_copy(update={"seeds": [0], "methods": ["classification"]})
    (cell,) = small.cells()
    store = Store(tmp_path)
    store.start(cell)
    file = store.folder_of(cell) / "outcome.json"
    file.write_text(text.replace("{hash}", cell.config_hash))
    assert store.find(cell) is None
    assert not store.is_done(cell)
    assert store.frame([cell]).empty
    assert store.explain([cell]) == [f"{cell.name}: {file} is damaged, so it is run again"]


def test_a_damaged_outcome_is_run_again(grid, tmp_path, go, results, undisturbed):
    assert go(grid, tmp_path)[0] == []
    Store(tmp_path).folder_of(grid.cells()[1]).joinpath("outcome.json").write_text("[]")
    failed, said = go(grid, tmp_path)
    assert failed == []
    assert "outcome.json is damaged, so it is run again\n4 runs, 3 of them finished before" in said
    assert results(grid, tmp_path).equals(undisturbed(grid))


def test_why_finished_cells_are_run_again_is_said(grid, photographs, tmp_path, monkeypatch):
    entry = {"name": "a", "source": "folder", "root": str(photographs)}
    grid = Grid.model_validate({"data": [entry], "methods": ["sord", "coral"]})
    store, cells = Store(tmp_path / "out"), grid.cells()
    for cell in cells:
        store.start(cell)
        store.finish(cell, finished(cell))
    assert store.explain([]) == []
    swap(photographs)
    changed = f"2 runs are made again: the data in {photographs} have changed since"
    assert Store(store.folder).explain(grid.cells()) == [changed]
    assert not any(Store(store.folder, any_version=True).is_done(cell) for cell in grid.cells())
    swap(photographs)
    assert all(store.is_done(cell) for cell in grid.cells())
    monkeypatch.setattr(cells_module, "code_version", lambda: "9+new")
    (sentence,) = Store(store.folder).explain(grid.cells()[:1])
    now = code_version()
    assert sentence == (
        f"1 run is made again: the code has changed since (from {now} to 9+new); "
        "--any-version keeps the results"
    )


def test_results_of_a_version_that_knew_folders_by_their_path_may_be_kept(photographs, tmp_path):
    entry = {"name": "a", "source": "folder", "root": str(photographs)}
    (cell,) = Grid.model_validate({"data": [entry], "methods": ["sord"]}).cells()
    assert cell.place_hash != cell.config_hash
    place = tmp_path / "cells" / "0123456789abcdef"
    place.mkdir(parents=True)
    old = {"wanted": cell.place_hash, "version": "0.1.0+old", "numbers": {"mode": {"mae": 0.5}}}
    (place / "outcome.json").write_text(json.dumps(old))
    assert not Store(tmp_path).is_done(cell)
    assert Store(tmp_path).explain([cell]) == [
        "1 run is made again: an earlier version did not know the content of their data; "
        "--any-version keeps the results"
    ]
    kept = Store(tmp_path, any_version=True)
    assert kept.is_done(cell)
    assert kept.run_folder(cell).path == place


def test_two_folders_of_results_become_one(grid, tmp_path):
    cells = grid.cells()
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    for store, own in ((here, cells[:2]), (there, cells[1:])):
        for number, cell in enumerate(own):
            store.start(cell)
            store.finish(cell, finished(cell, seconds=float(number)))
    there.start(cells[3])
    there.finish(cells[3], finished(cells[3], error="OSError: x", numbers={}))
    before = here.find(cells[1])
    assert here.merge(there.folder) == 1
    assert [here.is_done(cell) for cell in cells] == [True, True, True, False]
    assert here.find(cells[1]) == before
    assert here.merge(there.folder) == 0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (None, "it has neither cells nor results.csv"),
        ("data,method,seed\na,b,0\n", "an earlier version left them without cells"),
    ],
)
def test_only_results_can_be_merged(tmp_path, table, message):
    if table:
        (tmp_path / "results.csv").write_text(table)
    with pytest.raises(ValueError, match=f"merge must be .*: {message}"):
        read_outcomes(tmp_path)
