"""``layline data list`` and ``layline data check``."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from layline import data
from layline.cli import app

SMALL = ("--set", "per_class=2", "--set", "validation_per_class=1", "--set", "test_per_class=1")


def run(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def check(*arguments):
    return json.loads(run("check", *arguments, "--json").stdout)


@pytest.fixture
def decades(tmp_path):
    rng = np.random.default_rng(0)
    for decade in ("1930s", "1940s", "1950s", "1960s", "1970s"):
        (tmp_path / decade).mkdir()
        for i in range(10):
            pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / decade / f"{i}.jpg")
    return tmp_path


@pytest.mark.parametrize("name", data.names())
def test_every_source_is_listed_with_its_summary_and_origin(name):
    spec, output = data.SOURCES[name], run("list").output
    assert spec.summary in output
    assert spec.origin in output
    (entry,) = (one for one in json.loads(run("list", "--json").output) if one["name"] == name)
    assert (entry["summary"], entry["origin"]) == (spec.summary, spec.origin)
    assert entry["options"] == list(data.options_of(name))


def test_data_that_can_be_used_are_counted(decades, tmp_path):
    result = run("check", "photo-quality", *SMALL)
    assert result.exit_code == 0
    assert "very poor             2           1           1" in result.stdout
    assert "24 samples" in result.stdout
    result = run("check", "historical-color", "--root", decades, "--set", "proportional=true")
    assert result.exit_code == 0
    assert "note: These are shares of 1930s 10" in result.stdout
    result = run("check", decades)
    assert result.exit_code == 0
    assert "as folder: it has a folder of images per class" in result.stderr
    path = tmp_path / "ratings.csv"
    path.write_text("size,stars\n" + "".join(f"{i},{i % 3}\n" for i in range(30)))
    facts = check(path, "--label", "stars", "--classes", "2,1,0")
    assert facts["source"] == "table"
    assert facts["classes"] == ["2", "1", "0"]
    assert facts["can_run"] is True


def test_damaged_files_are_listed_and_may_be_skipped(decades):
    for i in range(10):
        for decade in ("1930s", "1940s", "1950s"):
            (decades / decade / f"{i}.jpg").write_bytes(b"no image")
    arguments = ("historical-color", "--root", decades, "--set", "proportional=true")
    result = run("check", *arguments)
    assert result.exit_code == 1
    assert result.stdout.count("not an image") == 20
    assert "10 more" in result.stdout
    facts = check(*arguments)
    assert (facts["can_run"], len(facts["bad"])) == (False, 30)
    facts = check(*arguments, "--set", "data.skip_bad=true")
    assert facts["counts"]["train"] == [0, 0, 0, 7, 7]
    assert "no training samples of 1930s, 1940s, 1950s" in facts["why"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("adiense",), "Did you mean adience?"),
        (("photo-quality", "--set", "sise=9"), "did you mean size?"),
        (("photo-quality", "--duplicates", "none"), "duplicates must be a known name"),
        (("adience",), "adience needs the folder or file"),
        (("adience", "--root", "/no/such/folder"), "/no/such/folder does not exist"),
        (("adience", "--root", "/", "--partition", "5"), "partitions 0…4, got 5"),
    ],
)
def test_a_wrong_argument_is_an_error_of_one_line(arguments, message):
    result = run("check", *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("layline: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_names_that_are_not_unicode_are_shown_escaped(decades):
    (decades / "1930s" / "caf\udce9.jpg").write_bytes(b"")
    result = run("check", decades)
    assert result.exit_code == 1
    assert "  1930s/caf\\udce9.jpg: empty file\n" in result.stdout
    (bad,) = check(decades)["bad"]
    assert bad["name"] == "1930s/caf\udce9.jpg"


def test_groups_are_given_by_a_pattern_or_a_column(decades, tmp_path):
    result = run("check", decades, "--group-by", r"/(\d)\.")
    assert "note: 10 groups in 50 samples." in result.stdout
    path = tmp_path / "ratings.csv"
    rows = [f"{i},{i % 3},{i // 3}\n" for i in range(60)]
    path.write_text("size,label,person\n" + "".join(rows))
    assert "20 groups in 60 samples" in run("check", path, "--group", "person").stdout


def test_duplicates_are_counted_and_their_contradictions_listed(tmp_path):
    for picture in range(15):
        noise = np.random.default_rng(picture).integers(0, 256, (32, 32, 3)).astype(np.uint8)
        for name in ("low", "high"):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.fromarray(noise).save(tmp_path / name / f"{picture}.png")
    result = run("check", tmp_path)
    assert result.exit_code == 0
    assert "15 duplicate images in 15 groups. Duplicates stay in one split." in result.stdout
    assert "  high/3.png (high), low/3.png (low)\n" in result.stdout
    report = check(tmp_path)["duplicates"]
    assert (report["duplicates"], report["groups"]) == (15, 15)
    assert len(report["contradicting"]) == 15
    assert check(tmp_path, "--duplicates", "off")["duplicates"] is None
