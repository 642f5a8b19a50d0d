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
            Image.new("RGB", (4, 4)).save(tmp_path / decade / f"{i}.jpg")
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
    assert "24 samples, 0 files missing, 0 unreadable" in result.output
    assert "the protocol can be run" in result.output


def test_a_folder_that_is_as_it_should_be_can_be_run(decades):
    result = run("check", "historical-color", "--root", decades, "--set", "proportional=true")
    assert result.exit_code == 0
    assert "note: These are shares of 1930s 10" in result.output


def test_unreadable_files_are_listed_up_to_twenty_and_counted(decades):
    for i in range(10):
        for decade in ("1930s", "1940s", "1950s"):
            (decades / decade / f"{i}.jpg").write_bytes(b"no image")
    arguments = ("historical-color", "--root", decades, "--set", "proportional=true")
    result = run("check", *arguments)
    assert result.exit_code == 1
    assert "0 files missing, 30 unreadable" in result.output
    assert result.output.count("not an image") == 20
    assert "10 more" in result.output
    assert "cannot be run: 30 files are missing or unreadable" in result.output
    found = json.loads(run("check", *arguments, "--json").output)
    assert (found["unreadable"], found["can_run"], len(found["bad"])) == (30, False, 30)
    assert found["counts"]["train"] == [7] * 5
    left_out = json.loads(run("check", *arguments, "--set", "data.skip_bad=true", "--json").output)
    assert left_out["counts"]["train"] == [0, 0, 0, 7, 7]
    assert "30 files" not in left_out["why"]


def test_missing_files_are_told_from_unreadable_ones(tmp_path):
    place = tmp_path / "test_fold_is_0"
    place.mkdir()
    (tmp_path / "aligned" / "a").mkdir(parents=True)
    (tmp_path / "aligned" / "a" / "0.jpg").write_bytes(b"")
    lines = [f"a/{k}.jpg {k}" for k in range(8)]
    (place / "age_train.txt").write_text("\n".join([*lines, lines[1]]))
    (place / "age_val.txt").write_text("a/9.jpg 3")
    (place / "age_test.txt").write_text("b/9.jpg 3")
    result = run("check", "adience", "--root", tmp_path)
    assert result.exit_code == 1
    assert "11 samples, 9 files missing, 1 unreadable" in result.output  # one is named twice


def test_a_protocol_that_cannot_be_run_says_why(tmp_path):
    (tmp_path / "img_files").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "img_files" / "1.jpg")
    table = "#flickr_photo_id\tcategory\tbeauty_scores\n1\turban\t3,3,3\n2\turban\t3,3,3\n"
    (tmp_path / "beauty-icwsm15-dataset.tsv").write_text(table)
    result = run("check", "image-aesthetics", "--root", tmp_path, "--set", "category=urban")
    assert result.exit_code == 1
    assert "1 of 2 urban" in result.output
    assert "cannot be run: the train part must have samples, got none" in result.output


def test_a_path_is_recognised_and_said(decades, tmp_path):
    result = run("check", decades)
    assert result.exit_code == 0
    assert result.stderr == (
        f"{decades} is taken as folder: there is a folder of images per class\n"
    )
    assert "note: The folder names are in the order of the numbers in them" in result.stdout
    path = tmp_path / "ratings.csv"
    path.write_text("size,stars\n" + "".join(f"{i},{i % 3}\n" for i in range(30)))
    result = run("check", path, "--label", "stars", "--classes", "2,1,0")
    assert result.exit_code == 0
    assert json.loads(run("check", path, "--label", "stars", "--json").stdout)["source"] == "table"
    assert "note: The classes are in the order given" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ("adiense",),
            2,
            "known name or a path, got 'adiense': did you mean adience?",
        ),
        (("photo-quality", "--set", "size"), 2, "--set must be key=value, got 'size'"),
        (("photo-quality", "--set", "sise=9"), 1, "got 'sise': did you mean size?"),
        (("adience",), 1, "root must be given for adience"),
        (("adience", "--root", "/no/such/folder"), 1, "root must exist, got /no/such/folder"),
        (("adience", "--partition", "5"), 1, "partition must be in 0…4, got 5"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments, code, message):
    result = run("check", *arguments)
    assert result.exit_code == code
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
    assert "24/24" in run("check", "photo-quality", *SMALL).stderr
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
    assert "note: 10 groups in 50 images, the largest has 5" in found.stdout
    found = run("check", decades, "--group", "person")
    assert found.exit_code == 1
    assert "must be a known name, got 'group': did you mean group_by" in found.stderr
    path = tmp_path / "ratings.csv"
    rows = [f"{i},{i % 3},{i // 3}\n" for i in range(60)]
    path.write_text("size,label,person\n" + "".join(rows))
    found = run("check", path)
    assert "note: The column 'person' looks like a group (20 values in 60 rows)" in found.stdout
    found = run("check", path, "--group", "person")
    assert "note: 20 groups in 60 rows, the largest has 3" in found.stdout
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


def test_copies_are_counted_and_their_contradictions_listed(copied):
    result = run("check", copied)
    assert result.exit_code == 0
    assert (
        "note: 15 images are copies of others (15 groups; 15 with different labels): "
        "copies stay in one part\n"
    ) in result.stdout
    assert "  high/3.png (high) and low/3.png (low)\n" in result.stdout
    report = json.loads(run("check", copied, "--json").stdout)["copies"]
    assert (report["copies"], report["identical"], report["groups"]) == (15, 15, 15)
    assert report["with_copy_in_training"] == {"validation": 0, "test": 0}
    assert report["contradicting"][0] == [
        {"name": "high/0.png", "label": "high"},
        {"name": "low/0.png", "label": "low"},
    ]


def test_copies_are_not_looked_for_if_nobody_wants_it(copied):
    result = run("check", copied, "--duplicates", "off")
    assert "copies" not in result.stdout
    assert "copies" not in json.loads(run("check", copied, "--duplicates", "off", "--json").stdout)
    assert run("check", copied, "--duplicates", "none").exit_code == 2
