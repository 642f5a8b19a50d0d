"""The name of a source's content, and of the samples that were read."""

import os
import pickle
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from layline import data
from layline.data import file_digests
from layline.data.dataset import Names
from layline.data.sources.table import read_table


@pytest.fixture
def photos(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYLINE_CACHE", str(tmp_path / "cache"))
    rng, root = np.random.default_rng(0), tmp_path / "photos"
    for name in ("1", "2"):
        (root / name).mkdir(parents=True)
        for number in range(8):
            pixels = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return root


@pytest.fixture
def manifest(photos):
    file = photos.parent / "labels.csv"
    rows = [f"photos/{name}/{number}.png,{name}" for name in "12" for number in range(8)]
    file.write_text("path,label\n" + "\n".join(rows) + "\n")
    return file


def swap(root):
    for old, new in (("1", "x"), ("2", "1"), ("x", "2")):
        (root / old).rename(root / new)


def delete(root):
    (root / "1/3.png").unlink()


def repaint(root):
    Image.new("RGB", (20, 20)).save(root / "2/5.png")


@pytest.mark.parametrize("change", [swap, delete, repaint])
@pytest.mark.parametrize("source", ["folder", "csv"])
def test_other_content_has_another_name(photos, manifest, source, change):
    root = photos if source == "folder" else manifest
    before = data.content_digest(source, root)
    assert data.content_digest(source, root) == before
    change(photos)
    assert data.content_digest(source, root) != before


@pytest.mark.parametrize("source", ["folder", "csv"])
def test_neither_the_place_nor_the_time_is_content(photos, manifest, source, tmp_path):
    before = data.content_digest(source, photos if source == "folder" else manifest)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.move(photos, moved)
    shutil.move(manifest, moved)
    for path in (moved / "photos").rglob("*.png"):
        os.utime(path)
    root = moved / ("photos" if source == "folder" else "labels.csv")
    assert data.content_digest(source, root) == before


def test_a_label_of_a_list_is_content_and_a_note_in_a_class_folder_is_not(photos, manifest):
    listed, folder = data.content_digest("csv", manifest), data.content_digest("folder", photos)
    manifest.write_text(manifest.read_text().replace("1/3.png,1", "1/3.png,2"))
    (photos / "1/notes.txt").write_text("nothing")
    assert data.content_digest("csv", manifest) != listed
    assert data.content_digest("folder", photos) == folder


@pytest.mark.parametrize("source", ["table", "npz"])
def test_a_file_is_known_by_its_bytes_and_read_once(tmp_path, monkeypatch, source):
    monkeypatch.setenv("LAYLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(file_digests, "_SETTLED", 0)
    read, digest = [], file_digests.hashlib.file_digest

    def counting(stream, kind):
        read.append(stream.name)
        return digest(stream, kind)

    monkeypatch.setattr(file_digests.hashlib, "file_digest", counting)
    file = tmp_path / f"data.{'csv' if source == 'table' else 'npz'}"
    file.write_bytes(b"a,label\n1,2\n")
    first = data.content_digest(source, file)
    assert data.content_digest(source, file) == first
    assert len(read) == 1
    (tmp_path / "cache" / "digests.json").write_text("[]")
    assert data.content_digest(source, file) == first
    file.write_bytes(b"a,label\n1,3\n")
    assert data.content_digest(source, file) != first
    assert data.content_digest(source, tmp_path) != first


def test_what_needs_no_files_or_cannot_be_read_has_an_answer(tmp_path, manifest):
    assert data.content_digest("photo-quality", None) is None
    before = data.content_digest("csv", manifest)
    manifest.write_text("nothing\n")
    assert data.content_digest("csv", manifest) not in (before, None)
    with pytest.raises(FileNotFoundError, match="root must exist, got"):
        data.content_digest("folder", tmp_path / "nowhere")


def test_rows_are_known_by_their_cells(tmp_path):
    file, text = (
        tmp_path / "a.csv",
        "a,b,label\n" + "".join(f"{i},x{i % 3},{i % 2}\n" for i in range(40)),
    )
    file.write_text(text)
    before = read_table(file).inputs
    assert read_table(file).inputs.digest() == before.digest()
    assert before.subset(np.arange(39)).digest() != before.digest()
    file.write_text(text.replace("\n7,", "\n8,"))
    assert read_table(file).inputs.digest() != before.digest()


TEXTS = st.lists(st.text(st.characters(), max_size=5), max_size=8)


@given(TEXTS, st.lists(st.integers(0, 7), max_size=9))
def test_names_are_the_strings_that_they_were_made_of(texts, keep):
    names = Names(texts)
    assert list(names) == texts
    assert names == texts
    assert [names[i] for i in range(-len(texts), 0)] == texts
    keep = [i for i in keep if i < len(texts)]
    part = names.take(np.array(keep, dtype=np.int64))
    wanted = [texts[i] for i in keep]
    assert (list(part), list(part[1:]), part == Names(wanted)) == (wanted, wanted[1:], True)
    sent = pickle.loads(pickle.dumps(part))
    assert (sent, hash(sent)) == (Names(wanted), hash(part))
    assert Names.unpack(*part.pack()) == wanted
    assert list(part.take(np.arange(len(part))[::-1])) == wanted[::-1]


def test_names_that_are_no_unicode_come_back_exactly():
    texts = [os.fsdecode(b"\xff\xfe.jpg"), "\ud800", "ä", ""]
    assert list(pickle.loads(pickle.dumps(Names(texts)))) == texts


def test_names_take_little_room_and_a_part_is_sent_alone():
    names = Names(f"folder/image-{i:06}.jpg" for i in range(10_000))
    sent = pickle.dumps(names)
    assert len(sent) < 10_000 * 32
    assert len(pickle.dumps(names.take(np.arange(100)))) < 100 * 50
    with pytest.raises(IndexError):
        names[10_000]
    with pytest.raises(ValueError, match="ends must be ascending"):
        Names.unpack(b"abc", np.array([2, 1, 3]))
