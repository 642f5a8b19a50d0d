import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from layline import data
from layline.cli import app
from layline.data import Dataset, SourceSpec, Splits

SMALL = ("--set", "per_class=2", "--set", "validation_per_class=1", "--set", "test_per_class=1")


def run(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


@pytest.fixture
def decades(tmp_path):
    for decade in ("1930s", "1940s", "1950s", "1960s", "1970s"):
        (tmp_path / decade).mkdir()
        for i in range(10):
            color = (20 * i, int(decade[:4]) - 1900, 0)
            Image.new("RGB", (4, 4), color).save(tmp_path / decade / f"{i}.jpg")
    return tmp_path


@pytest.mark.parametrize("name", data.names())
def test_every_source_is_listed_with_its_summary_and_origin(name):
    spec, output = data.SOURCES[name], run("list").output
    assert spec.summary in output
    assert spec.origin in output
    (entry,) = (one for one in json.loads(run("list", "--json").output) if one["name"] == name)
    assert (entry["summary"], entry["origin"]) == (spec.summary, spec.origin)
    assert entry["options"] == list(data.options_of(name))


def test_a_source_that_needs_no_files_can_be_run():
    result = run("check", "photo-quality", *SMALL)
    assert result.exit_code == 0
    assert "very poor             2           1           1" in result.output
    assert "24 samples" in result.output
    assert "Training can run" in result.output


def test_a_folder_that_is_as_it_should_be_can_be_run(decades):
    result = run("check", "historical-color", "--root", decades, "--set", "proportional=true")
    assert result.exit_code == 0
    assert "shares of 1930s 10" in result.output


def test_unreadable_files_are_listed_up_to_twenty_and_counted(decades):
    for i in range(10):
        for decade in ("1930s", "1940s", "1950s"):
            (decades / decade / f"{i}.jpg").write_bytes(b"no image")
    arguments = ("historical-color", "--root", decades, "--set", "proportional=true")
    result = run("check", *arguments)
    assert result.exit_code == 1
    assert result.output.count("not an image") == 20
    assert "10 more" in result.output
    assert "Training cannot run" in result.output
    found = json.loads(run("check", *arguments, "--json").output)
    assert (found["can_run"], len(found["bad"])) == (False, 30)
    left_out = json.loads(run("check", *arguments, "--set", "data.skip_bad=true", "--json").output)
    assert left_out["counts"]["train"] == [0, 0, 0, 7, 7]
    assert "30 files" not in left_out["why"]


def test_a_protocol_that_cannot_be_run_says_why(tmp_path):
    (tmp_path / "img_files").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "img_files" / "1.jpg")
    table = "#flickr_photo_id\tcategory\tbeauty_scores\n1\turban\t3,3,3\n2\turban\t3,3,3\n"
    (tmp_path / "beauty-icwsm15-dataset.tsv").write_text(table)
    result = run("check", "image-aesthetics", "--root", tmp_path, "--set", "category=urban")
    assert result.exit_code == 1
    assert "1 of 2 urban" in result.output
    assert "Training cannot run" in result.output


def test_a_path_is_recognised_and_said(decades, tmp_path):
    result = run("check", decades)
    assert result.exit_code == 0
    assert f"{decades} as folder" in result.stderr
    assert "order of the numbers" in result.stdout
    path = tmp_path / "ratings.csv"
    path.write_text("size,stars\n" + "".join(f"{i},{i % 3}\n" for i in range(30)))
    result = run("check", path, "--label", "stars", "--classes", "2,1,0")
    assert result.exit_code == 0
    assert json.loads(run("check", path, "--label", "stars", "--json").stdout)["source"] == "table"
    assert "order" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("adiense",), "adience"),
        (("photo-quality", "--set", "size"), "key=value"),
        (("photo-quality", "--set", "sise=9"), "size"),
        (("adience",), "root"),
        (("adience", "--root", "/no/such/folder"), "/no/such/folder"),
        (("adience", "--partition", "5"), "0…4"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments, message):
    result = run("check", *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("layline: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_rows_of_a_table_need_no_decoding(monkeypatch):
    class Rows(list):
        names = ("0", "1", "2", "3")

    def read(*, partition):
        parts = Splits(np.array([0, 1]), np.array([2]), np.array([3]))
        return Dataset(Rows(range(4)), np.array([0, 1, 0, 1]), ("low", "high"), parts)

    monkeypatch.setitem(data.SOURCES.builtin, "rows", SourceSpec(read, "rows", needs_root=False))
    result = run("check", "rows")
    assert result.exit_code == 0
    assert "4 samples" in result.output
    assert "your own data" in run("list").output


def test_a_terminal_sees_how_far_it_is(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "/24" in run("check", "photo-quality", *SMALL).stderr
    monkeypatch.delenv("FORCE_COLOR")
    assert run("check", "photo-quality", *SMALL).stderr == ""


def test_names_that_are_no_unicode_are_shown_escaped(decades):
    (decades / "1930s" / "caf\udce9.jpg").write_bytes(b"")
    found = run("check", decades)
    assert found.exit_code == 1
    assert "  1930s/caf\\udce9.jpg: empty file\n" in found.stdout
    (bad,) = json.loads(run("check", decades, "--json").stdout)["bad"]
    assert bad["name"] == "1930s/caf\udce9.jpg"


def test_groups_are_given_by_a_pattern_or_a_column(decades, tmp_path):
    found = run("check", decades, "--group-by", r"/(\d)\.")
    assert found.exit_code == 0
    assert "10 groups" in found.stdout
    found = run("check", decades, "--group", "person")
    assert found.exit_code == 1
    assert "group_by" in found.stderr
    path = tmp_path / "ratings.csv"
    rows = [f"{i},{i % 3},{i // 3}\n" for i in range(60)]
    path.write_text("size,label,person\n" + "".join(rows))
    found = run("check", path)
    assert "'person' looks like a group" in found.stdout
    found = run("check", path, "--group", "person")
    assert "20 groups" in found.stdout
    assert "looks like" not in found.stdout


@pytest.fixture
def copied(tmp_path):
    """Fifteen pictures, each in both classes."""
    for picture in range(15):
        noise = np.random.default_rng(picture).integers(0, 256, (32, 32, 3)).astype(np.uint8)
        for name in ("low", "high"):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.fromarray(noise).save(tmp_path / name / f"{picture}.png")
    return tmp_path


def test_duplicates_are_counted_and_contradictions_listed(copied):
    result = run("check", copied)
    assert result.exit_code == 0
    assert "high/3.png (high)" in result.stdout
    assert "low/3.png (low)" in result.stdout
    report = json.loads(run("check", copied, "--json").stdout)["duplicates"]
    assert report["groups"] == 15


def test_duplicates_are_not_searched_for_if_that_is_off(copied):
    found = run("check", copied, "--duplicates", "off", "--json")
    assert json.loads(found.stdout)["duplicates"] is None
    assert run("check", copied, "--duplicates", "none").exit_code == 1
