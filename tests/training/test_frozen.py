"""Backbone of a frozen body."""

import zlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from layline import backbones
from layline.data import file_digests
from layline.data.images import ImageArrays
from layline.data.loaders import RowBatches
from layline.data.preprocessing import ImagePreprocessing
from layline.training import frozen
from layline.training.frozen import Extraction, body_fingerprint, extract, shared_folder

COUNT = 50


@pytest.fixture
def body(monkeypatch):
    monkeypatch.setattr(frozen, "PIECE", 16)
    return backbones.create("mlp", 2, in_features=3, hidden=[5])


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(COUNT, 3)).astype(np.float32)


def run(body, rows, folder, processes=1, process=0, **options):
    accelerator = SimpleNamespace(
        device="cpu",
        process_index=process,
        num_processes=processes,
        is_main_process=process == 0,
        is_local_main_process=process == 0,
        wait_for_everyone=lambda: None,
    )
    return extract(Extraction(body, RowBatches(rows), folder, accelerator, 7, **options))


def test_rows_are_what_the_body_says_in_the_order_of_the_samples(body, rows, tmp_path):
    found = extract(Extraction(body, RowBatches(rows), tmp_path, Accelerator(cpu=True), 7))
    assert isinstance(found, np.memmap)
    with torch.no_grad():
        expected = body.body(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.npy"]


def test_what_was_extracted_is_read(body, rows, tmp_path, monkeypatch):
    first = np.array(run(body, rows, tmp_path))
    monkeypatch.setattr(type(body), "body", None)
    np.testing.assert_array_equal(run(body, rows, tmp_path), first)


def test_pieces_that_are_there_are_not_computed_again(body, rows, tmp_path):
    first = np.array(run(body, rows, tmp_path / "whole"))
    done = []
    piece = tmp_path / "part" / "piece-000000016.rows"
    piece.parent.mkdir()
    data = np.full((16, 5), 7, dtype=np.float32).tobytes()
    piece.write_bytes(data + frozen._seal(data))
    found = run(body, rows, tmp_path / "part", progress=done.append)
    assert done[-1] == COUNT - 16
    assert (found[16:32] == 7).all()
    np.testing.assert_array_equal(found[:16], first[:16])
    np.testing.assert_array_equal(found[32:], first[32:])


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:9] + b"x" + b[10:]]
)
def test_a_damaged_piece_is_computed_again(body, rows, tmp_path, monkeypatch, damage):
    first = np.array(run(body, rows, tmp_path / "whole"))
    with monkeypatch.context() as patch:
        patch.setattr(frozen, "_join", None)  # a stop before the end
        with pytest.raises(TypeError):
            run(body, rows, tmp_path / "part")
    piece = tmp_path / "part" / "piece-000000016.rows"
    piece.write_bytes(damage(piece.read_bytes()))
    done = []
    np.testing.assert_array_equal(run(body, rows, tmp_path / "part", progress=done.append), first)
    assert done[-1] == 16


def test_processes_share_the_pieces(body, rows, tmp_path, monkeypatch):
    first = np.array(run(body, rows, tmp_path / "whole"))
    counts = [], []
    monkeypatch.setattr(frozen, "_is_on_common_disk", lambda job: True)
    with monkeypatch.context() as patch:  # the second process would read what is not there yet
        patch.setattr(frozen, "open_rows", lambda *args, **kwargs: None)
        run(body, rows, tmp_path / "shared", 2, 1, progress=counts[1].append)
    found = run(body, rows, tmp_path / "shared", 2, 0, progress=counts[0].append)
    assert (counts[0][-1], counts[1][-1]) == (32, 18)
    np.testing.assert_array_equal(found, first)


def test_another_run_may_be_quicker(body, rows, tmp_path, monkeypatch):
    """Runs on cached images share the folder, and the first to join the pieces removes them."""
    join, first = frozen._join, []

    def late(job):
        join(job)
        first.append(job.rows.read_bytes())
        join(job)

    monkeypatch.setattr(frozen, "_join", late)
    run(body, rows, tmp_path)
    assert (tmp_path / "rows.npy").read_bytes() == first[0]


def test_a_piece_that_vanished_is_an_error(body, rows, tmp_path, monkeypatch):
    join = frozen._join

    def robbed(job):
        job.pieces()[1].unlink()
        join(job)

    monkeypatch.setattr(frozen, "_join", robbed)
    with pytest.raises(FileNotFoundError, match="nothing was left half-written"):
        run(body, rows, tmp_path)
    assert not (tmp_path / "rows.npy").exists()


def test_a_full_disk_leaves_whole_pieces(body, rows, tmp_path, monkeypatch):
    write, calls = frozen.Path.write_bytes, []

    def full(path, data):
        calls.append(1)
        if len(calls) == 3:
            write(path, b"half")
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(frozen.Path, "write_bytes", full)
    with pytest.raises(OSError, match="nothing was left half-written"):
        run(body, rows, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "piece-000000000.rows",
        "piece-000000016.rows",
    ]


def flipped(place):
    return lambda data: data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        *(flipped(200), flipped(900), flipped(-1), flipped(-17), flipped(-60)),
        *(
            lambda data: b"",
            lambda data: data[:100],
            lambda data: data[:700],
            lambda data: data[:-1],
        ),
        *(lambda data: bytes(len(data)), lambda data: data[:200] + bytes(300) + data[500:]),
        lambda data: data[: 128 + 4 * COUNT * 5],  # as an earlier version wrote it
    ],
)
def test_features_that_changed_are_noticed_and_made_again(body, rows, tmp_path, damage):
    first = np.array(run(body, rows, tmp_path))
    file = tmp_path / "rows.npy"
    file.write_bytes(damage(file.read_bytes()))
    said = []
    np.testing.assert_array_equal(run(body, rows, tmp_path, say=said.append), first)
    assert len(said) == 1
    assert said[0].startswith(f"The features in {file} are not as they were written: ")
    assert said[0].endswith("; they are extracted again")
    again = []
    run(body, rows, tmp_path, say=again.append)
    assert again == []


def test_features_are_read_in_full_until_the_system_could_tell_a_change(
    body, rows, tmp_path, monkeypatch
):
    sums = []

    def counting(data):
        sums.append(len(data))
        return zlib.crc32(data)

    run(body, rows, tmp_path)
    monkeypatch.setattr(frozen, "crc32", counting)
    monkeypatch.setattr(file_digests, "_SETTLED", 0)
    for verify, pieces in ((False, 4), (False, 0), (True, 4)):
        sums.clear()
        run(body, rows, tmp_path, verify=verify)
        assert (len(sums), sum(sums)) == (pieces, 4 * COUNT * 5 * bool(pieces))
    (tmp_path / "rows.npy").touch()
    sums.clear()
    run(body, rows, tmp_path)
    assert len(sums) == 4


def test_machines_without_a_common_disk_each_extract_everything(body, rows, tmp_path, monkeypatch):
    first = np.array(run(body, rows, tmp_path / "one"))
    monkeypatch.setattr(frozen, "_is_on_common_disk", lambda job: False)
    done = []
    np.testing.assert_array_equal(
        run(body, rows, tmp_path / "two", 2, 0, progress=done.append), first
    )
    assert done[-1] == COUNT


def test_bodies_are_told_apart_by_what_is_frozen_of_them(body):
    before = body_fingerprint(body)
    body.last.weight.data += 1
    assert body_fingerprint(body) == before
    body.hidden[0].weight.data += 1
    assert body_fingerprint(body) != before


def test_runs_share_features_by_the_content_of_images_where_a_cache_is_wanted(
    body, tmp_path, monkeypatch
):
    monkeypatch.setenv("LAYLINE_CACHE", str(tmp_path))
    squares = ImagePreprocessing(8, 8)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
    images, same = ImageArrays(pixels), ImageArrays(pixels.copy(), names="abcd")
    place = shared_folder(body, images, squares, cache=True)
    assert place.parent == tmp_path
    assert place == shared_folder(body, same, squares, cache=True)
    others = images.subset(np.array([0, 2, 1, 3]))
    assert place != shared_folder(body, others, squares, cache=True)
    for other in (ImagePreprocessing(8, 9), ImagePreprocessing(8, 8, smallest_part=0.5)):
        assert place != shared_folder(body, images, other, cache=True)
    assert shared_folder(body, images, squares, cache=False) is None
