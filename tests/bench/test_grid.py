"""A grid is the product of its parts, and what is wrong with it is said before anything runs."""

import pytest

from layline import heads
from layline.bench.grid import Grid, check_not_reserved, parse_tune, read_grid
from layline.training.recipes import resolve_config

RESERVED = {"training.seed": "name it in seeds"}


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


def test_a_part_of_a_grid_has_the_runs_of_the_whole(tree):
    first = tree["data"][0]
    whole = Grid.model_validate({**tree, "data": [first, {**first, "name": "other"}]})
    part = whole.only(["other"])
    found = {cell.labels["data"] for cell in part.cells()}
    assert found == {"other"}
    assert {c.key for c in part.cells()} <= {c.key for c in whole.cells()}
    with pytest.raises(ValueError, match=r"only must be a known name, got 'othr'.*other"):
        whole.only(["othr"])


def test_recipes_are_compared_with_all_else_alike(tree):
    cells = Grid.model_validate({**tree, "recipes": ["paper", "released"]}).cells()
    assert len(cells) == 2 * 2 * 2
    assert len({cell.key for cell in cells}) == len(cells)
    for cell in cells:
        assert cell.labels["recipe"] == cell.config.recipe
        assert (cell.config.training.optimiser == "sgd") == (cell.config.recipe == "released")
        assert cell.config.training.epochs == 3


def test_the_recipe_of_a_grid_is_written_out(tree):
    del tree["recipes"]
    grid = Grid.model_validate(tree)
    assert f'recipes = [\n    "{resolve_config({"data": {"source": "table"}}).recipe}",\n]' in (
        grid.to_toml()
    )


def test_without_decodings_each_recipe_reads_by_its_own(tree):
    del tree["decodings"]
    grid = Grid.model_validate({**tree, "recipes": ["paper", "modern"]})
    assert grid.read_by() == ["mode", "median"]
    for cell in grid.cells():
        own = {"paper": "mode", "modern": "median"}[cell.config.recipe]
        assert cell.config.training.decoding == own
    tree["settings"]["training"]["metric"] = "qwk"
    assert Grid.model_validate({**tree, "recipes": ["modern"]}).read_by() == ["mean"]


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


def test_options_of_the_command_decide_over_a_data_set_of_the_file(tree, tmp_path):
    own = {"settings": {"training": {"epochs": 7, "batch_size": 4}}, "tune": {"head.dim": [4, 8]}}
    tree["data"].append({**tree["data"][0], "name": "other", **own})
    file = tmp_path / "grid.toml"
    file.write_text(Grid.model_validate(tree).to_toml())
    mixed = read_grid(file, None, {}, {"training": {"epochs": 9}}, {"head.dim": [2]})
    for cell in mixed.cells():
        assert cell.config.training.epochs == 9
        assert cell.config.head.dim == 2
        assert cell.config.training.batch_size == (4 if cell.labels["data"] == "other" else 16)
    with pytest.raises(ValueError, match=r"head.dim must not be set, got 3: it is tuned; --tune"):
        read_grid(file, None, {}, {"head": {"dim": 3}}, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ["hard-liner"]}, "did you mean hard-linear"),
        ({"decodings": ["median", "middle"]}, "decodings must be a known name, got 'middle'"),
        ({"settings": {"training": {"epoch": 3}}}, "training.epoch: is no setting"),
        ({"settings": {"training": {"epochs": 0}}}, "ratings, hard-linear: training.epochs"),
        ({"tune": {"head.sise": [3]}}, "head.sise: is no setting"),
        ({"seeds": [0, 1, 0]}, "seeds must be different, got 0, 1, 0"),
        ({"backbone": ["mlp", "mlp"]}, "features must be different"),
        ({"decodings": ["mode", "mode"]}, "decodings must be different"),
        (
            {"settings": {"training": {"decode": "mean"}}},
            "training.decode must not be set, got 'mean'",
        ),
        ({"recipes": ["papier"]}, "recipes must be a known name, got 'papier'"),
        ({"recipes": ["paper", "paper"]}, "recipes must be different"),
        ({"settings": {"recipe": "released"}}, "recipe must not be set, got 'released': name it"),
        ({"tune": {"recipe": ["paper"]}}, "recipe must not be set"),
        ({"settings": {"training": {"budget": 5}}}, "does not depend on the clock"),
        ({"settings": {"data": {"partition": 3}}}, "got 3: it follows from seeds"),
        ({"tune": {"training.seed": [5, 6]}}, "training.seed must not be set, got 5"),
        ({"tune": {"head.dim": [4, 4]}}, "values of head.dim to tune must be different, got 4, 4"),
        ({"reference": "hard-liner"}, "reference must be a known name, got 'hard-liner'"),
        ({"tune_seeds": [9]}, "tune_seeds must be among seeds, got .9.* add them to seeds"),
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


def test_variants_may_stand_beside_all(tree):
    fixed = {"name": "fixed", "method": "hard-linear", "options": {"norm": 3.0}}
    cells = Grid.model_validate({**tree, "methods": ["all", fixed]}).cells()
    assert {cell.labels["method"] for cell in cells} == {*heads.names(), "fixed"}


def test_a_reserved_setting_is_named_with_its_value_and_the_cure():
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


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"methods": ["arc", "classification"]}, "classification"),
        ({"methods": ["arc", "soft-poisson"]}, "arc"),
        ({"methods": ["arc", "classification"], "reference": "arc"}, "arc"),
        ({}, "classification"),
    ],
)
def test_methods_are_compared_with_a_plain_classifier_or_the_first_unless_one_is_named(
    given, expected
):
    assert Grid(data=[{"name": "photos", "source": "photo-quality"}], **given).against() == expected
