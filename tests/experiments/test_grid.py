"""A grid is the product of its parts, and a cell is known by its configuration."""

import subprocess
import sys

import pytest

from layline import heads
from layline.experiments import cells as cells_module
from layline.experiments.cells import Cell, code_version
from layline.experiments.grid import Grid, check_not_reserved, parse_tune, read_grid


def changed(cell: Cell, **sections: dict) -> Cell:
    config = cell.config
    update = {
        name: getattr(config, name).model_copy(update=values) for name, values in sections.items()
    }
    return Cell(config.model_copy(update=update), cell.labels, cell.threads)


def test_a_grid_is_the_product_of_its_parts(tree):
    tree["tune"] = {"training.head_learning_rate": [0.01, 0.001], "head.dim": [4, 8, 16]}
    cells = Grid.model_validate(tree).cells()
    assert len(cells) == 2 * 2 * (2 * 3)
    assert len({cell.key for cell in cells}) == len(cells)
    combinations = {
        (c.config.head.method, c.config.training.seed, c.config.head.dim) for c in cells
    }
    assert len(combinations) == 2 * 2 * 3


def test_all_methods_are_those_of_the_registry(tree):
    tree["methods"] = ["all"]
    assert {c.labels["method"] for c in Grid.model_validate(tree).cells()} == set(heads.names())


def test_a_method_may_be_there_in_variants(tree):
    fixed = {"name": "fixed", "method": "hard-linear", "options": {"norm": 3.0}}
    cells = Grid.model_validate({**tree, "methods": ["hard-linear", fixed]}).cells()
    options = {cell.labels["method"]: cell.config.head.options for cell in cells}
    assert options == {"hard-linear": {}, "fixed": {"norm": 3.0}}
    assert len({cell.key for cell in cells}) == 4


def test_variants_have_different_names(tree):
    twice = {"name": "hard-linear", "method": "hard-linear", "options": {"norm": 3.0}}
    with pytest.raises(ValueError, match="methods must be different"):
        Grid.model_validate({**tree, "methods": ["hard-linear", twice]}).cells()


def test_a_seed_is_that_of_the_run_and_of_the_partition(grid):
    assert {(c.config.training.seed, c.config.data.partition) for c in grid.cells()} == {
        (0, 0),
        (1, 1),
    }


def test_where_partitions_are_counted_seeds_go_round(tree):
    tree["data"] = [{"name": "faces", "source": "adience", "root": "somewhere"}]
    tree["seeds"] = [4, 5, 7]
    partitions = [
        c.config.data.partition
        for c in Grid.model_validate(tree).cells()
        if c.config.head.method == "hard-linear"
    ]
    assert partitions == [4, 0, 2]


def test_the_first_decoding_chooses_the_epoch(tree):
    tree["decodings"] = ["median", "mode"]
    assert {c.config.training.decode for c in Grid.model_validate(tree).cells()} == {"median"}


def test_a_data_set_has_settings_and_tuning_of_its_own(tree):
    tree["tune"] = {"head.dim": [4, 8]}
    tree["data"].append(
        {**tree["data"][0], "name": "other", "settings": {"training": {"epochs": 7}}, "tune": {}}
    )
    cells = Grid.model_validate(tree).cells()
    other = [c for c in cells if c.labels["data"] == "other"]
    assert len(other) == 4
    assert len(cells) == 12
    assert {c.config.training.epochs for c in other} == {7}


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
        ("data", {"cache": True}),
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


def test_a_grid_survives_its_file(grid, tmp_path):
    file = tmp_path / "grid.toml"
    file.write_text(grid.to_toml())
    assert read_grid(file) == grid


def test_relative_roots_are_in_the_data_folder(tmp_path):
    file = tmp_path / "grid.toml"
    file.write_text('[[data]]\nname = "a"\nsource = "table"\nroot = "sub/a.csv"\n')
    grid = read_grid(file, tmp_path / "data", {}, {}, {})
    assert grid.data[0].root == tmp_path / "data" / "sub" / "a.csv"


def test_options_of_the_command_decide_over_the_file(grid, tmp_path):
    file = tmp_path / "grid.toml"
    file.write_text(grid.to_toml())
    settings = {"training": {"epochs": 9}}
    mixed = read_grid(file, None, {"seeds": [7]}, settings, {"head.dim": [4]})
    assert mixed.seeds == [7]
    assert mixed.settings["training"] == {"epochs": 9, "batch_size": 16, "device": "cpu"}
    assert mixed.tune == {"head.dim": [4]}
    assert mixed.methods == grid.methods


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ["hard-liner"]}, "did you mean hard-linear"),
        ({"decodings": ["median", "middle"]}, "decodings must be a known name, got 'middle'"),
        ({"settings": {"training": {"epoch": 3}}}, "training.epoch: is no setting"),
        ({"settings": {"training": {"epochs": 0}}}, "ratings, hard-linear: training.epochs"),
        ({"tune": {"head.sise": [3]}}, "head.sise: is no setting"),
        ({"seeds": [0, 1, 0]}, "seeds must be different, got 0, 1, 0"),
        ({"features": ["mlp", "mlp"]}, "features must be different"),
        ({"decodings": ["mode", "mode"]}, "decodings must be different"),
        (
            {"settings": {"training": {"decode": "mean"}}},
            "training.decode must not be set, got 'mean'",
        ),
        ({"settings": {"data": {"partition": 3}}}, "got 3: it follows from seeds"),
        ({"tune": {"training.seed": [5, 6]}}, "training.seed must not be set, got 5"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(tree, change, message):
    with pytest.raises(ValueError, match=message):
        Grid.model_validate({**tree, **change}).cells()


def test_data_sets_have_different_names(tree):
    tree["data"] *= 2
    with pytest.raises(ValueError, match="data must be different, got ratings, ratings"):
        Grid.model_validate(tree).cells()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[data]]\nname = 'a'\nsource = 'table'\nrot = 'x'\n", r"data.0.rot: is no setting"),
        ("methods = []\n[[data]]\nname = 'a'\nsource = 'table'\n", "methods: .*at least 1"),
        ("seeds = [-1]\n[[data]]\nname = 'a'\nsource = 'table'\n", "seeds.0: "),
        ("seeds = [1]\n", "SOURCES must be given"),
    ],
)
def test_a_wrong_file_is_named(tmp_path, text, message):
    file = tmp_path / "grid.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_grid(file)


def test_tuning_is_read_from_the_command():
    assert parse_tune(["training.head_learning_rate=[0.1, 0.01]", "head.dim=[4]"]) == {
        "training.head_learning_rate": [0.1, 0.01],
        "head.dim": [4],
    }


def test_tuning_needs_a_list():
    with pytest.raises(ValueError, match=r"--tune must be a setting with a list .* write head.dim"):
        parse_tune(["head.dim=4"])


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


def test_variants_may_stand_beside_all(tree):
    fixed = {"name": "fixed", "method": "hard-linear", "options": {"norm": 3.0}}
    cells = Grid.model_validate({**tree, "methods": ["all", fixed]}).cells()
    assert {cell.labels["method"] for cell in cells} == {*heads.names(), "fixed"}


RESERVED = {"training.seed": "name it in seeds"}


def test_what_is_decided_elsewhere_is_named_with_its_value_and_the_cure():
    with pytest.raises(
        ValueError, match=r"training\.seed must not be set, got 3: name it in seeds"
    ):
        check_not_reserved({"training": {"epochs": 2, "seed": 3}}, RESERVED)


@pytest.mark.parametrize(
    "settings",
    [{}, {"training": {"epochs": 2}}, {"head": {"seed": 3}}, {"recipe": "released"}],
)
def test_everything_else_passes(settings):
    assert check_not_reserved(settings, RESERVED) is None


def test_a_section_is_not_a_value():
    with pytest.raises(ValueError, match="training: must be a section of settings, got 1"):
        check_not_reserved({"training": 1}, {"training.seed": "it follows"})
