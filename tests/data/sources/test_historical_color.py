import io
import re
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from layline import data
from layline.data.sources.historical_color import read_historical_color

DECADES = ("1930s", "1940s", "1950s", "1960s", "1970s")
TREE = "HistoricalColor-ECCV2012/data/imgs/decade_database"


def jpeg(shade=0):
    stream = io.BytesIO()
    Image.new("RGB", (4, 4), (shade % 256, 0, 0)).save(stream, "JPEG")
    return stream.getvalue()


def make_decades(folder, each=265):
    for decade in DECADES:
        (folder / decade).mkdir(parents=True)
        for i in range(each):
            (folder / decade / f"img{i}.jpg").write_bytes(jpeg(i))
    return folder


@pytest.fixture(scope="session")
def official(tmp_path_factory):
    """The official tree, whole; tests only read it."""
    root = tmp_path_factory.mktemp("historical")
    make_decades(root / TREE)
    return root


def by_name(dataset):
    return {
        part: {dataset.inputs.names[i] for i in indices}
        for part, indices in dataset.splits.by_name().items()
    }


def test_every_decade_gives_210_5_and_50(official):
    dataset = read_historical_color(official)
    assert dataset.classes == DECADES
    assert dataset.notes == ()
    for part, each in {"train": 210, "validation": 5, "test": 50}.items():
        indices = dataset.splits.by_name()[part]
        assert np.bincount(dataset.ranks[indices]).tolist() == [each] * 5
    assert len(set.union(*by_name(dataset).values())) == 5 * 265


def test_a_rank_is_the_folder_of_its_image(official):
    dataset = read_historical_color(official)
    for name, rank in zip(dataset.inputs.names, dataset.ranks, strict=True):
        assert name.startswith(DECADES[rank])
    assert dataset.inputs.load(0).shape == (4, 4, 3)


def test_ten_partitions_all_different_and_each_always_the_same(official):
    drawn = [by_name(data.read("historical-color", official, p)) for p in range(10)]
    assert len({frozenset(parts["test"]) for parts in drawn}) == 10
    assert by_name(read_historical_color(official, partition=3)) == drawn[3]
    with pytest.raises(ValueError, match="partitions 0…9, got 10"):
        data.read("historical-color", official, 10)


@pytest.mark.parametrize("inner", [TREE, TREE.rpartition("/")[0], "HistoricalColor-ECCV2012"])
def test_any_folder_of_the_tree_will_do(official, inner):
    assert by_name(read_historical_color(official / inner)) == by_name(
        read_historical_color(official)
    )


def test_the_order_of_the_directory_does_not_matter(official, monkeypatch):
    from layline.data import images

    there = by_name(read_historical_color(official))
    listed = images.list_images
    monkeypatch.setattr(images, "list_images", lambda folder: listed(folder)[::-1])
    assert by_name(read_historical_color(official)) == there


ARCHIVE = "HistoricalColor-ECCV2012-DecadeDatabase.tar"
OUTSIDE = "../../decade_database/1930s/../../../escaped.jpg"


@pytest.fixture(scope="session")
def official_archive(official, tmp_path_factory):
    """The tree as an archive, with files beside it that are not wanted."""
    path = tmp_path_factory.mktemp("archive") / ARCHIVE
    with tarfile.open(path, "w") as archive:
        archive.add(official / TREE, arcname=TREE)
        for name in (f"{TREE}/1930s/._img0.jpg", "HistoricalColor-ECCV2012/readme.txt", OUTSIDE):
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"junk"))
    return path


@pytest.fixture
def archive(official_archive, tmp_path):
    return Path(shutil.copy(official_archive, tmp_path))


def test_the_archive_gives_what_its_tree_gives(official, archive, tmp_path):
    first = read_historical_color(archive)
    assert by_name(first) == by_name(read_historical_color(official))
    assert "the published archive has afb4c47b7da105c4afd1f27e06bea171" in first.notes[0]
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert sorted(path.name for path in folder.iterdir()) == list(DECADES)

    (folder / "1930s" / "img0.jpg").write_bytes(b"kept")  # it is not unpacked again
    again = read_historical_color(tmp_path)  # the archive is found in its folder
    assert (again.inputs.root / "1930s" / "img0.jpg").read_bytes() == b"kept"


@pytest.mark.slow
def test_two_processes_may_unpack_at_once(official, archive, tmp_path, monkeypatch):
    from layline.data.sources import historical_color

    members = historical_color._members

    def slow(tar):
        monkeypatch.undo()
        read_historical_color(archive)  # the other one, from start to end
        yield from members(tar)

    monkeypatch.setattr(historical_color, "_members", slow)
    assert by_name(read_historical_color(archive)) == by_name(read_historical_color(official))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("keep", [0.5, 0.999])
def test_a_truncated_archive_leaves_nothing_behind(archive, tmp_path, keep):
    whole = archive.read_bytes().rstrip(b"\0")
    archive.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(ValueError, match=r"Database\.tar is damaged"):
        read_historical_color(archive)
    assert [path.name for path in tmp_path.iterdir()] == [ARCHIVE]


def test_a_file_that_is_no_archive_is_named(tmp_path):
    (tmp_path / "photos.tar").write_bytes(b"no tar")
    with pytest.raises(ValueError, match="neither a folder nor a tar archive"):
        read_historical_color(tmp_path / "photos.tar")


def test_fewer_images_are_refused_with_their_counts(tmp_path):
    make_decades(tmp_path, each=8)
    (tmp_path / "1950s" / "img0.jpg").unlink()
    counts = "1930s 8, 1940s 8, 1950s 7, 1960s 8, 1970s 8"
    with pytest.raises(ValueError, match=f"needs 265 images, got {counts}. Get the whole"):
        read_historical_color(tmp_path)


def test_the_same_shares_of_fewer_images_if_asked(tmp_path):
    make_decades(tmp_path, each=53)
    dataset = read_historical_color(tmp_path, proportional=True)
    assert {part: len(names) for part, names in by_name(dataset).items()} == {
        "train": 5 * 42,
        "validation": 5,
        "test": 5 * 10,
    }
    assert "not the published protocol" in dataset.notes[0]
    with pytest.raises(ValueError, match="proportional must be true or false, got 'yes'"):
        read_historical_color(tmp_path, proportional="yes")


def test_two_images_do_not_make_three_parts(tmp_path):
    with pytest.raises(ValueError, match="at least 3 images, got 1930s 2"):
        read_historical_color(make_decades(tmp_path, each=2), proportional=True)


def test_a_surplus_file_that_is_no_image_is_left_out_and_a_surplus_image_is_not_used(
    official, tmp_path
):
    shutil.copytree(official / TREE, tmp_path, dirs_exist_ok=True)
    (tmp_path / "1940s" / "broken.jpg").write_bytes(b"junk")
    junk = read_historical_color(tmp_path)
    assert by_name(junk) == by_name(read_historical_color(official))
    assert junk.notes == ("1940s/broken.jpg cannot be decoded and is not used.",)

    (tmp_path / "1940s" / "broken.jpg").write_bytes(jpeg())
    surplus = read_historical_color(tmp_path)
    assert sum(len(part) for part in surplus.splits.by_name().values()) == 5 * 265
    assert re.search("1940s 266, .*; 265 of each are used", surplus.notes[0])


def test_a_root_without_the_decades_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no folders 1930s, 1940s"):
        read_historical_color(tmp_path)
    (tmp_path / "1930s").mkdir()
    with pytest.raises(FileNotFoundError, match="has no folder 1940s, 1950s, 1960s, 1970s"):
        read_historical_color(tmp_path)
