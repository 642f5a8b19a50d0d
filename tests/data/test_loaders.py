"""From inputs to batches: the same whatever the number of workers and processes."""

import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from layline.data.images import BadImageError, ImageArrays, ImageFiles
from layline.data.loaders import ImageBatches, RowBatches, loader, sequential_batches
from layline.data.preprocessing import ImagePreprocessing

SQUARES = ImagePreprocessing(8, 10)
PIXELS = np.random.default_rng(0).integers(0, 256, (7, 9, 12, 3), dtype=np.uint8)


def fetched(samples, batches, workers=0):
    return [(x.clone(), index.clone()) for x, index in loader(samples, batches, workers)]


@pytest.fixture
def files(tmp_path):
    for i, image in enumerate(PIXELS):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    return ImageFiles(tmp_path, [f"{i}.png" for i in range(len(PIXELS))])


def test_a_batch_is_its_images_prepared_for_testing():
    x, index = ImageBatches(ImageArrays(PIXELS), SQUARES).__getitems__([(3, 0), (1, 5)])
    assert index.tolist() == [3, 1]
    for image, place in zip(x, (3, 1), strict=True):
        assert torch.equal(image, SQUARES.for_testing(PIXELS[place]))


def test_an_augmented_image_follows_from_the_seed_the_epoch_and_the_sample_alone():
    one = ImageBatches(ImageArrays(PIXELS), SQUARES, "crop", seed=4)
    x, _ = one.__getitems__([(2, 1), (3, 1), (2, 2), (2, 1)])
    assert torch.equal(x[0], x[3])
    assert not torch.equal(x[0], x[2])
    alone, _ = one.__getitems__([(2, 1)])
    assert torch.equal(alone[0], x[0])
    other, _ = ImageBatches(ImageArrays(PIXELS), SQUARES, "crop", seed=5).__getitems__([(2, 1)])
    assert not torch.equal(other[0], x[0])


@pytest.mark.parametrize("augmentation", ["none", "crop"])
def test_the_batches_are_the_same_with_workers_and_without(files, augmentation):
    samples = ImageBatches(files, SQUARES, augmentation, seed=1)
    batches = [[(0, 1), (4, 1)], [(6, 1)], [(1, 1), (2, 1), (3, 1)]]
    before = torch.get_rng_state()
    alone, helped = fetched(samples, batches, 0), fetched(samples, batches, 2)
    assert torch.equal(torch.get_rng_state(), before)  # the global generator is not used
    assert len(alone) == len(helped) == 3
    for (x, index), (y, place) in zip(alone, helped, strict=True):
        assert torch.equal(x, y)
        assert x.dtype == torch.uint8
        assert y.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(index, place)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("content", "why"), [(None, "missing"), (b"", "empty file")])
def test_an_image_that_is_lost_on_the_way_is_named(files, workers, content, why):
    path = files.root / "2.png"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadImageError) as caught:
        fetched(ImageBatches(files, SQUARES), [[(i, 0)] for i in range(7)], workers)
    assert str(caught.value) == f"The image {path} cannot be read: {why}"


LEFT_AND_KILLED = """if True:
    import gc, os, signal, sys
    from pathlib import Path
    from layline.data.images import ImageFiles
    from layline.data.preprocessing import ImagePreprocessing
    from layline.data.loaders import ImageBatches, loader

    class Killed(ImageBatches):
        def __getitems__(self, keys):
            if keys[0][0] == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__getitems__(keys)

    files = ImageFiles(Path(sys.argv[1]), [f"{i}.png" for i in range(7)])
    batches = loader(ImageBatches(files, ImagePreprocessing(4, 4)), [[(i, 0)] for i in range(7)], 2)
    left = [iter(batches)]
    next(left[0])
    left.append(left)
    del batches, left
    gc.collect()
    print("left")
    try:
        samples = Killed(files, ImagePreprocessing(8, 10))
        list(loader(samples, [[(i, 0)] for i in range(7)], workers=2))
    except ValueError as error:
        print(error)
"""


@pytest.mark.slow
def test_a_killed_worker_is_an_error_of_its_own_and_no_process_waits_for_one_that_was_left(files):
    command = [sys.executable, "-c", LEFT_AND_KILLED, str(files.root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("left\nA data-loading worker died"), done.stderr


def test_an_image_that_cannot_be_decoded_can_be_marked(files):
    (files.root / "2.png").write_bytes(b"no image")
    x, index = ImageBatches(files, SQUARES, keep_going=True).__getitems__([(1, 0), (2, 0), (0, 0)])
    assert index.tolist() == [1, ~2, 0]
    assert not x[1].any()
    assert torch.equal(x[2], SQUARES.for_testing(PIXELS[0]))


def test_rows_are_taken_as_they_are_also_from_a_mapped_file(tmp_path):
    rows = np.random.default_rng(0).normal(size=(5, 3))
    np.save(tmp_path / "rows.npy", rows)
    for source in (rows, np.load(tmp_path / "rows.npy", mmap_mode="r")):
        x, index = RowBatches(source).__getitems__([(4, 0), (0, 3)])
        assert index.tolist() == [4, 0]
        np.testing.assert_array_equal(x.numpy(), rows[[4, 0]])


@given(count=st.integers(0, 60), size=st.integers(1, 20), processes=st.integers(1, 5))
def test_in_order_every_sample_is_in_one_batch_of_one_process(count, size, processes):
    whole = sequential_batches(count, size)
    shared = [sequential_batches(count, size, p, processes) for p in range(processes)]
    assert [key for batch in whole for key in batch] == [(i, 0) for i in range(count)]
    assert all(len(batch) == size for batch in whole[:-1])
    together = sorted(batch for part in shared for batch in part)
    assert together == sorted(whole)  # the very same batches, so that results do not differ


class Signals:
    """Samples that are the handlers of SIGINT and SIGTERM in a worker."""

    workers_help = True

    def __len__(self):
        return 1

    def __getitems__(self, keys):
        handlers = [signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]
        return torch.tensor([int(handler) for handler in handlers]), torch.tensor([0])


def test_a_worker_leaves_signals_to_the_main_process():
    ((found, _),) = fetched(Signals(), [[(0, 0)]], workers=1)
    assert found.tolist() == [int(signal.SIG_IGN), int(signal.SIG_IGN)]
