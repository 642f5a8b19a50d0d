"""The model card of a run, read again by the hub's own loader."""

import shutil
import tomllib

import pytest
import tomli_w
from huggingface_hub import ModelCard

from layline.metrics import METRICS
from layline.reports.card import create_card as card
from layline.training.run_folder import RunFolder
from layline.utils.files import write_json


@pytest.fixture(scope="module")
def run(write_run, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "graded"
    return write_run(path, classes=("low", "mid|dle", "*high*"), ranges=True, never=2)


def test_the_hub_reads_the_metrics_with_their_intervals(run):
    found = ModelCard(card(run))
    numbers = RunFolder(run).read_numbers()
    results = {each.metric_name: each for each in found.data.eval_results}
    mae = results[METRICS["mae"].label]
    assert (mae.metric_type, mae.metric_value) == ("mae", numbers["mae"])
    assert mae.metric_args["interval"] == numbers["intervals"]["mae"]
    assert mae.metric_args["level"] == numbers["intervals"]["level"]
    assert (mae.dataset_split, mae.task_type) == ("test", "image-classification")
    assert results[METRICS["accuracy"].label].metric_value == numbers["accuracy"]
    assert found.data.library_name == "layline"
    assert "soft-poisson" in found.data.tags
    assert found.data.license is None


def test_it_has_counts_alarms_and_coverage(run):
    text, folder = ModelCard(card(run)).text, RunFolder(run)
    counts = folder.read_environment()["counts"]
    assert f"| low | {counts['train'][0]} | {counts['validation'][0]} |" in text
    assert "Never predicted: “\\*high\\*”" in text
    for each in folder.read_numbers()["ranges"]:
        assert f"| {each['coverage']:.0%} | {each['measured']:.1%} |" in text
    assert "temperature of 1.7" in text


def test_a_run_that_was_not_calibrated_does_not_claim_it(run, tmp_path):
    shutil.copytree(run, tmp_path / "plain")
    folder = RunFolder(tmp_path / "plain")
    numbers = folder.read_numbers()
    numbers["calibration"]["temperature"] = 1.0
    write_json(folder.test, numbers)
    assert "temperature" not in card(folder.path)


def test_names_mean_nothing_in_markdown(run):
    text = card(run)
    assert "mid\\|dle" in text
    assert "| mid|dle |" not in text
    assert all(line.count(" | ") == 3 for line in text.splitlines() if line.startswith("| mid"))


@pytest.mark.parametrize("backbone", ["convnet", "tf_efficientnet_lite0"])
def test_images_of_an_array_file_are_called_images(write_run, tmp_path, backbone):
    folder = RunFolder(write_run(tmp_path / "run", ranges=True))
    text = folder.config.read_text()
    config = tomllib.loads(text)
    config["data"]["source"], config["backbone"]["name"] = "npz", backbone
    folder.config.write_text(tomli_w.dumps(config))
    found = card(folder.path)
    assert "A model for images" in found
    assert "rows of a table" not in found
