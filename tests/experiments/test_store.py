"""A cell is known by its configuration, its threads and the code."""

import subprocess
import sys

import pytest

from layline.experiments import store as store_module
from layline.experiments.grid import Grid
from layline.experiments.paper.presets import PRESETS
from layline.experiments.store import Cell, code_version


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
        ("features", {"options": {"width": 3}}),
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
    monkeypatch.setattr(store_module, "code_version", lambda: "another")
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


def test_another_process_gives_the_same_key(grid, tmp_path):
    file = tmp_path / "grid.toml"
    file.write_text(grid.to_toml())
    program = (
        "import sys; from pathlib import Path; from layline.experiments.grid import read_grid;"
        "print(*(c.key for c in read_grid(Path(sys.argv[1])).cells()))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == [cell.key for cell in grid.cells()]


def test_the_version_names_the_code():
    assert code_version().startswith("0.")
    assert "+" in code_version()


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


def test_a_folder_is_known_by_its_path(tree, tmp_path):
    tree["data"] = [{"name": "a", "source": "folder", "root": str(tmp_path / "a")}]
    one = Grid.model_validate(tree).cells()[0].key
    tree["data"][0]["root"] = str(tmp_path / "b")
    assert Grid.model_validate(tree).cells()[0].key != one
