"""Runs that are killed repeatedly end with the same results."""

import random

import pytest
from safetensors.torch import save_file

from layline import backbones

pytestmark = pytest.mark.slow

TRAINER = "layline.training.trainer:Trainer"
SAVING = "layline.training.callbacks"
# in the order in which a resumed run reaches them
MOMENTS = [
    {"target": f"{TRAINER}._step", "number": 2},
    {"target": f"{TRAINER}._step", "number": 1, "when": "after"},
    {"target": "accelerate.utils.other:safe_save_file", "when": "half"},
    {"target": "torch:save", "when": "half"},
    {"target": f"{SAVING}:publish_folder"},
    {"target": f"{SAVING}:publish_folder", "when": "after"},
    {"target": f"{TRAINER}._validate"},
    {"target": "layline.model.model_file:save_file", "when": "half"},
    {"target": f"{SAVING}:save_model", "when": "after"},
    {"target": "numpy:savez"},
    {"target": "layline.training.run_folder:write_text", "number": 2},
    {"target": "layline.training.run_folder:write_text", "number": 2, "when": "after"},
    {"target": f"{SAVING}:publish_folder", "number": 2, "when": "after"},
    {"target": f"{SAVING}:shutil.rmtree", "number": 2},
    {"target": "layline.evaluation.evaluate:Evaluation.write_predictions", "when": "after"},
    {"target": "layline.training.run:write_json"},
    {"target": "layline.training.report_data:_write_thumbnail"},
]


@pytest.fixture(scope="module")
def undisturbed(attempt, crops, outcome, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "undisturbed"
    assert attempt("train", *crops, "--out", folder).codes == [0]
    return outcome(folder)


def start_or_resume(folder, options):
    started = (folder / "config.toml").exists()
    return ("train", "--resume", folder) if started else ("train", *options, "--out", folder)


def test_killed_at_every_kind_of_moment(attempt, crops, outcome, undisturbed, tmp_path):
    folder = tmp_path / "run"
    for harm in MOMENTS:
        made = attempt(*start_or_resume(folder, crops), harm=[harm])
        assert made.codes == [-9], (harm, made.stderr)
    assert attempt("train", "--resume", folder).codes == [0]
    assert outcome(folder) == undisturbed
    assert {path.name for path in folder.rglob(".*")} <= {".lock"}  # unfinished files were removed


def test_killed_at_any_change_of_a_file(attempt, crops, outcome, undisturbed, tmp_path):
    folder, draw, codes = tmp_path / "run", random.Random(0), []
    while [0] not in codes:
        arguments = start_or_resume(folder, crops)
        # the test alone changes files some 70 times, so that it would never finish with fewer
        made = attempt(*arguments, touches=draw.randint(1, 100), folder=str(folder))
        codes.append(made.codes)
        assert made.codes in ([-9], [0]), made.stderr
    assert len(codes) > 3
    assert outcome(folder) == undisturbed


def test_killed_at_any_time(attempt, crops, outcome, undisturbed, tmp_path):
    folder, draw = tmp_path / "run", random.Random(0)
    for _ in range(6):
        attempt(*start_or_resume(folder, crops), seconds=draw.uniform(0.2, 1))
    assert attempt(*start_or_resume(folder, crops)).codes == [0]
    assert outcome(folder) == undisturbed


def test_killed_while_features_are_extracted(attempt, crops, outcome, tmp_path):
    weights = tmp_path / "weights.safetensors"
    save_file(backbones.create("convnet", 4).state_dict(), weights)
    options = (*crops, "--weights", weights, "--freeze")
    # 84 samples are five batches, and each is committed
    small = {
        "layline.training.prepare:PIECE": 20,
        "layline.evaluation.predictions:_CPU_IMAGES": 20,
    }

    def run(cache, *harm, folder=tmp_path / "run"):
        environment = {"LAYLINE_CACHE": str(tmp_path / cache)}
        arguments = start_or_resume(folder, options)
        return attempt(*arguments, harm=harm, values=small, environment=environment)

    assert run("one", folder=tmp_path / "whole").codes == [0]
    commit = "layline.data.array_cache:Writer.commit"
    extract = "layline.backbones.convnet:ConvNet.body"
    assert run("two", {"target": commit, "number": 3}).codes == [-9]
    assert run("two", {"target": commit, "number": 2, "when": "after"}).codes == [-9]
    # the last of three pieces that are left
    assert run("two", {"target": extract, "number": 1}).codes == [-9]
    assert run("two", {"target": f"{TRAINER}._step", "number": 2}).codes == [-9]
    assert run("two", {"target": extract}).codes == [0]  # nothing is extracted again
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
