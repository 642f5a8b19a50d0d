"""Features of a frozen body."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from layline import features
from layline.data.images.cache import CachedImages
from layline.data.images.files import ImageArrays
from layline.data.loading import RowBatches
from layline.training import frozen
from layline.training.frozen import Extraction, body_fingerprint, extract, shared_folder

COUNT = 50


@pytest.fixture
def body(monkeypatch):
    monkeypatch.setattr(frozen, "PIECE", 16)
    return features.create("mlp", 2, in_features=3, hidden=[5])


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(COUNT, 3)).astype(np.float32)


def run(body, rows, folder, processes=1, process=0, **options):
    accelerator = SimpleNamespace(
        device="cpu",
        process_index=process,
        num_processes=processes,
        is_main_process=process == 0,
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
    piece = tmp_path / "part" / "piece-000000016.npy"
    piece.parent.mkdir()
    np.save(piece, np.full((16, 5), 7, dtype=np.float32))
    found = run(body, rows, tmp_path / "part", progress=done.append)
    assert done[-1] == COUNT - 16
    assert (found[16:32] == 7).all()
    np.testing.assert_array_equal(found[:16], first[:16])
    np.testing.assert_array_equal(found[32:], first[32:])


def test_processes_share_the_pieces(body, rows, tmp_path, monkeypatch):
    first = np.array(run(body, rows, tmp_path / "whole"))
    counts = [], []
    with monkeypatch.context() as patch:  # the second process would read what is not there yet
        patch.setattr(np, "load", lambda *args, **kwargs: None)
        run(body, rows, tmp_path / "shared", 2, 1, progress=counts[1].append)
    found = run(body, rows, tmp_path / "shared", 2, 0, progress=counts[0].append)
    assert (counts[0][-1], counts[1][-1]) == (32, 18)
    np.testing.assert_array_equal(found, first)


def test_another_run_may_be_quicker(body, rows, tmp_path, monkeypatch):
    """Runs on cached images share the folder, and the first to join the pieces removes them."""
    join, first = frozen._join, []

    def late(pieces, whole, *args):
        join(pieces, whole, *args)
        first.append(whole.read_bytes())
        join(pieces, whole, *args)

    monkeypatch.setattr(frozen, "_join", late)
    run(body, rows, tmp_path)
    assert (tmp_path / "rows.npy").read_bytes() == first[0]


def test_a_piece_that_vanished_is_an_error(body, rows, tmp_path, monkeypatch):
    join = frozen._join

    def robbed(pieces, *args):
        pieces[1].unlink()
        join(pieces, *args)

    monkeypatch.setattr(frozen, "_join", robbed)
    with pytest.raises(FileNotFoundError, match="nothing was left half-written"):
        run(body, rows, tmp_path)
    assert not (tmp_path / "rows.npy").exists()


def test_a_full_disk_leaves_whole_pieces(body, rows, tmp_path, monkeypatch):
    save, calls = np.save, []

    def full(file, array):
        calls.append(1)
        if len(calls) == 3:
            file.write(b"half")
            raise OSError(28, "No space left on device")
        save(file, array)

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="nothing was left half-written"):
        run(body, rows, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "piece-000000000.npy",
        "piece-000000016.npy",
    ]


def test_bodies_are_told_apart_by_what_is_frozen_of_them(body):
    before = body_fingerprint(body)
    body.last.weight.data += 1
    assert body_fingerprint(body) == before
    body.hidden[0].weight.data += 1
    assert body_fingerprint(body) != before


def test_runs_share_features_of_cached_images_only(body, tmp_path):
    images = CachedImages(tmp_path / "key.pixels", [], np.zeros(0, int), np.zeros((0, 2), int), 8)
    place = shared_folder(body, images, "as they are")
    assert place.parent == tmp_path
    assert place == shared_folder(body, images, "as they are")
    assert place != shared_folder(body, images, "smaller")
    assert shared_folder(body, [], "as they are") is None


def test_images_in_memory_share_their_features_where_a_cache_is_wanted(body, tmp_path, monkeypatch):
    monkeypatch.setenv("LAYLINE_CACHE", str(tmp_path))
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
    images, same = ImageArrays(pixels), ImageArrays(pixels.copy(), names="abcd")
    place = shared_folder(body, images, "as they are", cache=True)
    assert place.parent == tmp_path
    assert place == shared_folder(body, same, "as they are", cache=True)
    others = images.subset(np.array([0, 2, 1, 3]))
    assert place != shared_folder(body, others, "as they are", cache=True)
    assert shared_folder(body, images, "as they are") is None
