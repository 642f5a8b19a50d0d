"""From a recipe, a file and single settings to one complete configuration."""

import tomllib

import pytest

from layline import heads
from layline.training.config import parse_settings, read_toml, to_toml
from layline.training.recipes import RECIPES, resolve_config

MINIMAL = {"data": {"source": "photo-quality"}}


def test_the_recipe_of_the_paper_is_the_paper():
    config = resolve_config(MINIMAL, {"recipe": "paper"})
    training = config.training
    assert (training.optimiser, training.learning_rate) == ("adamw", 0.001)
    assert training.head_learning_rate == 0.01
    assert (training.batch_size, training.epochs, training.schedule) == (32, 48, "none")
    assert (training.warmup_epochs, training.ema, training.clip, training.patience) == (0, 0, 0, 0)
    assert (training.decode, training.metric, training.ties) == ("mode", "mae", "first")
    assert not config.data.keep_ratio
    assert config.head.method == "hard-linear"


def test_the_released_recipe_is_the_authors_code():
    config = resolve_config(MINIMAL, {"recipe": "released", "head": {"method": "soft-poisson"}})
    assert config.head.options == {"target": "onehot", "unimodal_over": "classes", "alpha": 5.0}
    assert (config.training.optimiser, config.training.momentum) == ("sgd", 0.9)
    assert config.training.milestones == [36, 44]
    assert config.data.keep_ratio
    assert config.training.drop_last


@pytest.mark.parametrize("method", heads.names())
def test_the_rate_of_a_head_is_its_own_in_modern_alone_unless_it_is_named(method):
    factor = 10 if method in ("coral", "proportional-odds") else 1
    own = {"head": {"method": method}}
    written = tomllib.loads(to_toml(resolve_config(MINIMAL, own)))
    assert written["training"]["head_learning_rate"] == pytest.approx(0.01 * factor)
    for recipe, rate in (("paper", 0.01), ("released", 0.1)):
        config = resolve_config(MINIMAL, own, {"recipe": recipe})
        assert config.training.head_learning_rate == rate
    for rate in (0.003, 0.01):
        named = resolve_config(MINIMAL, own, {"training": {"head_learning_rate": rate}})
        assert named.training.head_learning_rate == rate
    assert resolve_config(written) == resolve_config(MINIMAL, own)


def test_a_setting_is_read_as_toml_or_as_text():
    texts = {"0.5": 0.5, "true": True, "[1, 2]": [1, 2], "two words": "two words", '"3"': "3"}
    for text, value in (texts | {"a=b": "a=b", "": ""}).items():
        assert parse_settings([f"head.options.x={text}"]) == {"head": {"options": {"x": value}}}


@pytest.mark.parametrize("setting", ["training.epochs", "=3", "training.=3", ".epochs=3"])
def test_a_setting_without_key_or_value_is_refused(setting):
    with pytest.raises(ValueError, match="must be written as key=value"):
        parse_settings([setting])


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_configuration_survives_its_file(tmp_path, recipe):
    config = resolve_config(
        MINIMAL,
        {
            "recipe": recipe,
            "data": {"root": "x", "options": {"classes": ["a", "b"]}},
            "training": {"class_weight": {"a": 2.0}, "patience": 3},
        },
    )
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert resolve_config(read_toml(path)) == config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"training": {"epoch": 3}},
            r"training\.epoch: unknown setting. Did you mean training.epochs",
        ),
        ({"trainin": {}}, r"trainin: unknown setting. Did you mean training"),
        ({"training": {"epochs": "many"}}, r"training\.epochs: .*integer.*got 'many'"),
        ({"training": {"epochs": 0}}, r"training\.epochs: .*greater than 0.*got 0"),
        ({"training": {"learning_rate": float("nan")}}, r"training\.learning_rate: .*finite"),
        ({"training": {"decode": "mod"}}, r"training\.decode: .*did you mean mode"),
        ({"data": {"augmentation": "crops"}}, r"should be 'crop', .* got 'crops'"),
        ({"head": {"method": "hard-lines"}}, "method must be a known name.*hard-linear"),
        ({"recipe": "papers"}, r"recipe must be a known name.*did you mean paper"),
        (
            {"training": {"schedule": "linear"}},
            r"training\.schedule: .*'none', 'cosine' or 'steps'",
        ),
        ({"data": {"source": None}}, r"data\.source: .*string"),
        ({"recipe": "paper", "training": {"budget": 5}}, "budget is only for the recipe modern"),
        ({"training": 3}, "training: .*dictionary.*got 3"),
    ],
)
def test_a_wrong_setting_is_named(settings, message):
    with pytest.raises(ValueError, match=message):
        resolve_config(MINIMAL, settings)


def test_a_file_that_is_no_toml_is_refused(tmp_path):
    (tmp_path / "a.toml").write_text("epochs = = 3")
    with pytest.raises(ValueError, match=r"a\.toml is not a valid TOML file"):
        read_toml(tmp_path / "a.toml")


def config(**sections):
    sections.setdefault("data", {"source": "photo-quality"})
    return resolve_config(sections)


def test_what_follows_from_the_source_is_filled_in_and_what_was_chosen_stays():
    made = config()
    assert (made.backbone.name, made.backbone.weights) == ("convnet", "none")
    assert made.data.augmentation == "flip"
    chosen = {"source": "csv", "augmentation": "none", "root": "labels.csv"}
    made = config(data=chosen, backbone={"name": "resnet18", "weights": "none"})
    assert (made.backbone.name, made.data.augmentation) == ("resnet18", "none")


def test_paths_do_not_depend_on_where_the_run_was_started(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights.safetensors").touch()
    made = config(
        data={"source": "folder", "root": "photos"},
        backbone={"name": "convnet", "weights": "weights.safetensors"},
    )
    assert made.data.root == tmp_path / "photos"
    assert made.backbone.weights == str(tmp_path / "weights.safetensors")


def test_random_weights_are_not_frozen():
    with pytest.raises(ValueError, match="freeze needs pretrained weights"):
        config(backbone={"freeze": True})
