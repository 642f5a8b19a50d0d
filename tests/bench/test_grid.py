"""A grid is the product of its parts; keys identify runs; errors come before any run."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import layline
from layline.bench.grid import Cell, Grid, read_grid


def test_a_grid_is_the_product_of_its_parts(tree):
    tree["tune"] = {"training.head_learning_rate": [0.01, 0.001], "head.dim": [4, 8, 16]}
    cells = Grid.model_validate({**tree, "recipes": ["paper", "released"]}).cells()
    assert len({cell.key for cell in cells}) == len(cells) == 2 * 2 * 2 * (2 * 3)
    parts = {(c.config.head.method, c.config.training.seed, c.config.head.dim) for c in cells}
    assert len(parts) == 2 * 2 * 3
    for cell in cells:
        assert cell.labels["recipe"] == cell.config.recipe
        assert cell.config.training.epochs == 3
        assert f"dim={cell.config.head.dim}" in cell.labels["setting"]


def test_a_seed_is_that_of_the_run_and_of_the_partition(grid, tree):
    pairs = {(c.config.training.seed, c.config.data.partition) for c in grid.cells()}
    assert pairs == {(0, 0), (1, 1)}
    tree["data"] = [{"name": "faces", "source": "adience", "root": "somewhere"}]
    cells = Grid.model_validate({**tree, "seeds": [4, 5, 7], "methods": ["sord"]}).cells()
    assert [cell.config.data.partition for cell in cells] == [4, 0, 2]


def test_without_decodings_each_recipe_uses_its_own(tree):
    del tree["decodings"]
    grid = Grid.model_validate({**tree, "recipes": ["paper", "modern"]})
    assert grid.used_decodings() == ["mode", "median"]
    for cell in grid.cells():
        assert cell.config.training.decoding == {"paper": "mode"}.get(cell.config.recipe, "median")
    tree["decodings"] = ["mean", "mode"]
    assert {c.config.training.decode for c in Grid.model_validate(tree).cells()} == {"mean"}


def test_a_data_set_has_its_own_settings_and_tuning(tree):
    tree["tune"] = {"head.dim": [4, 8]}
    own = {"name": "other", "settings": {"training": {"epochs": 7}}, "tune": {}}
    tree["data"].append({**tree["data"][0], **own})
    grid = Grid.model_validate(tree)
    cells = grid.cells()
    other = [cell for cell in cells if cell.labels["data"] == "other"]
    assert (len(other), len(cells)) == (4, 12)
    assert {c.config.training.epochs for c in other} == {7}


def test_the_command_overrides_the_file_and_its_data_sets(tree, tmp_path):
    own = {"settings": {"training": {"epochs": 7, "batch_size": 4}}, "tune": {"head.dim": [4, 8]}}
    tree["data"].append({**tree["data"][0], "name": "other", **own})
    grid = Grid.model_validate(tree)
    file = tmp_path / "grid.toml"
    file.write_text(grid.to_toml())
    assert read_grid(file) == grid
    mixed = read_grid(file, None, {"seeds": [7]}, {"training": {"epochs": 9}}, {"head.dim": [2]})
    for cell in mixed.cells():
        assert (cell.config.training.epochs, cell.config.head.dim) == (9, 2)
        assert cell.config.training.batch_size == (4 if cell.labels["data"] == "other" else 16)
        assert cell.labels["seed"] == "7"
    with pytest.raises(ValueError, match=r"head\.dim is tuned"):
        read_grid(file, None, {}, {"head": {"dim": 3}}, {})


def test_methods_of_the_command_replace_the_baselines_of_the_file(tree, tmp_path):
    file = tmp_path / "grid.toml"
    baseline = "sklearn.linear_model:LogisticRegression"
    file.write_text(Grid.model_validate({**tree, "baselines": [baseline]}).to_toml())
    assert read_grid(file).baselines == [baseline]
    assert read_grid(file, given={"methods": ["sord"]}).baselines == []
    both = {"methods": ["sord"], "baselines": ["sklearn.svm:SVC"]}
    assert read_grid(file, given=both).baselines == ["sklearn.svm:SVC"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ["hard-liner"]}, "hard-linear"),
        ({"methods": []}, "neither methods nor baselines"),
        ({"decodings": ["median", "middle"]}, "middle"),
        ({"settings": {"training": {"epoch": 3}}}, "training.epoch"),
        ({"settings": {"training": {"epochs": 0}}}, "ratings, hard-linear: training.epochs"),
        ({"tune": {"head.sise": [3]}}, "head.sise"),
        ({"seeds": [0, 1, 0]}, "seeds must not contain duplicates, got 0 twice"),
        ({"methods": ["sord", {"name": "sord", "method": "emd"}]}, "got sord twice"),
        ({"settings": {"training": {"decode": "mean"}}}, "training.decode cannot be set"),
        ({"recipes": ["papier"]}, "papier"),
        ({"settings": {"training": {"budget": 5}}}, "do not depend on the clock"),
        ({"tune": {"head.dim": [4, 4]}}, "head.dim must not contain duplicates"),
        ({"reference": "hard-liner"}, "hard-liner"),
        ({"tune_seeds": [9]}, "tune_seeds must be among the seeds, got 9"),
    ],
)
def test_errors_are_reported_before_any_run(tree, change, message):
    with pytest.raises(ValueError, match=message):
        Grid.model_validate({**tree, **change}).cells()


def changed(cell: Cell, **sections: dict) -> Cell:
    update = {
        name: getattr(cell.config, name).model_copy(update=values)
        for name, values in sections.items()
    }
    return replace(cell, config=cell.config.model_copy(update=update))


@pytest.mark.parametrize(
    ("section", "values", "same"),
    [
        ("training", {"epochs": 4}, False),
        ("training", {"seed": 9}, False),
        ("head", {"options": {"norm": 3.0}}, False),
        ("data", {"partition": 5}, False),
        ("backbone", {"options": {"width": 3}}, False),
        ("training", {"checkpoint_minutes": 1.0}, True),
        ("data", {"workers": 3}, True),
        ("report", {"review": 3}, True),
    ],
)
def test_the_key_depends_on_what_changes_numbers(grid, section, values, same):
    cell = grid.cells()[0]
    assert (changed(cell, **{section: values}).key == cell.key) == same


def test_the_key_depends_on_threads_and_version_but_not_on_labels_or_the_gpu(grid, monkeypatch):
    cell = grid.cells()[0]
    assert replace(cell, labels={"data": "another name"}).key == cell.key
    assert replace(cell, threads=2).key != cell.key
    one, other = (changed(cell, training={"device": f"cuda:{gpu}"}) for gpu in (0, 3))
    assert one.key == other.key != cell.key
    before = cell.key
    monkeypatch.setattr(layline, "__version__", "99")
    assert replace(cell).key != before


@pytest.fixture
def photographs(tmp_path):
    """Six small images in two class folders."""
    rng = np.random.default_rng(0)
    for name in ("bad", "good"):
        (tmp_path / "photographs" / name).mkdir(parents=True)
        for number in range(3):
            file = tmp_path / "photographs" / name / f"{number}.png"
            Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(file)
    return tmp_path / "photographs"


def key(root) -> str:
    entry = {"name": "a", "source": "folder", "root": str(root)}
    (cell,) = Grid.model_validate({"data": [entry], "methods": ["sord"]}).cells()
    return cell.key


def swap(folder):
    (folder / "bad").rename(folder / "x")
    (folder / "good").rename(folder / "bad")
    (folder / "x").rename(folder / "good")


CHANGES = {
    "classes swapped": swap,
    "an image deleted": lambda folder: (folder / "bad" / "1.png").unlink(),
    "an image changed": lambda folder: Image.new("RGB", (8, 8)).save(folder / "bad" / "1.png"),
    "an image added": lambda folder: shutil.copy(folder / "bad" / "1.png", folder / "good/9.png"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_key_depends_on_the_content_of_the_data_not_on_their_place(
    photographs, tmp_path, change
):
    before = key(photographs)
    shutil.copytree(photographs, tmp_path / "moved")
    assert key(tmp_path / "moved") == before
    change(photographs)
    assert key(photographs) != before
