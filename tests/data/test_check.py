import io
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from PIL import Image

from layline.data.decoding import decode
from layline.data.images import ImageArrays, ImageFiles
from layline.data.index import BadImage, describe_bad, find_bad


def encoded(image_format, side=40, **options):
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, image_format, **options)
    return file.getvalue()


WHOLE = {
    "baseline.jpg": encoded("JPEG"),
    "progressive.jpg": encoded("JPEG", progressive=True),
    "restarts.jpg": encoded("JPEG", restart_marker_rows=1),
    "image.png": encoded("PNG"),
    "image.gif": encoded("GIF"),
    "plain.tif": encoded("TIFF"),
    "packed.tif": encoded("TIFF", compression="tiff_lzw"),
    "image.webp": encoded("WEBP"),
    "image.bmp": encoded("BMP"),
    "image.ppm": encoded("PPM"),
}


class Streams:
    """Images in memory, to be read as if from files; an exception is raised instead."""

    def __init__(self, *contents):
        self.contents = contents
        self.names = [f"image {index}" for index in range(len(contents))]

    def __len__(self):
        return len(self.contents)

    def load(self, index, at_least=None):
        if isinstance(self.contents[index], bytes):
            return decode(io.BytesIO(self.contents[index]), at_least)
        raise self.contents[index]


def faults(*contents, **options):
    return {bad.index: bad.why for bad in find_bad(Streams(*contents), **options)}


def test_good_images_are_not_bad(tmp_path):
    for name, content in WHOLE.items():
        (tmp_path / name).write_bytes(content)
    assert find_bad(ImageFiles(tmp_path, list(WHOLE))) == []
    assert find_bad(ImageArrays(np.zeros((5, 4, 4), dtype=np.uint8))) == []
    assert find_bad(ImageFiles(tmp_path, [])) == []


def test_every_fault_of_a_file_is_named_in_its_order(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 3_000_000)
    contents = {
        "empty.jpg": b"",
        "text.jpg": b"no image at all",
        "script.jpg": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        "cut.jpg": WHOLE["baseline.jpg"][:-200],
        "cut.png": WHOLE["image.png"][:-200],
        "good.jpg": WHOLE["baseline.jpg"],
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    Image.new("1", (2000, 2000)).save(tmp_path / "large.png")  # Pillow warns of it
    Image.new("1", (3000, 4000)).save(tmp_path / "huge.png")  # and refuses this one
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    names = [*contents, "large.png", "huge.png", "folder.jpg", "pipe.jpg", "none.jpg"]
    names += ["good.jpg/inside.jpg", "x" * 300 + ".jpg", "a\0b.jpg"]
    bad = find_bad(ImageFiles(tmp_path, names))
    assert [image.index for image in bad] == [0, 1, 2, 3, 4, *range(6, len(names))]
    assert all(image.name == names[image.index] for image in bad)
    why = {image.name: image.why for image in bad}
    damage = "truncated or damaged: "
    assert why["cut.jpg"].startswith(damage + "image file is truncated")
    assert why["cut.png"].startswith(damage)
    assert [why[name] for name in ("empty.jpg", "text.jpg", "script.jpg")] == [
        "empty file",
        "not an image",
        "not an image",
    ]
    assert [image.why for image in bad[5:]] == [
        "too large: 2000×2000 pixels, more than 3 million",
        "too large: 3000×4000 pixels, more than 3 million",
        "a directory, not a file",
        "not a regular file",
        "missing",
        "missing",
        "cannot be read: file name too long",
        "truncated or damaged: embedded null byte",
    ]


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.jpg").write_bytes(WHOLE["baseline.jpg"])

    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    bad = find_bad(ImageFiles(tmp_path, ["a.jpg"]))
    assert bad == [BadImage(0, "a.jpg", "cannot be read: permission denied")]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (struct.error("unpack requires"), "truncated or damaged: unpack requires"),
        (SyntaxError("not a TIFF file"), "truncated or damaged: not a TIFF file"),
        (OverflowError(), "truncated or damaged: OverflowError"),
        (OSError("broken <_io.BytesIO object at 0x7f>"), "truncated or damaged: broken the file"),
        (OSError(22, "Invalid argument"), "truncated or damaged: [Errno 22] Invalid argument"),
        (OSError(5, "Input/output error"), "cannot be read: input/output error"),
        (ValueError("one\ntwo"), "truncated or damaged: one"),
        (AssertionError("x" * 500), "truncated or damaged: " + "x" * 120),
        (MemoryError(), "cannot be read: out of memory"),
        (RecursionError("too deep"), "truncated or damaged: too deep"),
    ],
)
def test_no_exception_gets_through(error, why):
    assert faults(b"", error, WHOLE["image.png"]) == {0: "empty file", 1: why}


@pytest.mark.parametrize("name", WHOLE)
def test_a_file_cut_at_any_byte_is_bad_unless_no_pixel_is_lost(name):
    content = WHOLE[name]
    cuts = [*range(30), *range(30, len(content) - 30, 13), *range(len(content) - 30, len(content))]
    pieces = [content[:cut] for cut in cuts]
    quick, full = (faults(*pieces, at_least=at_least).keys() for at_least in (None, 1000))
    assert quick == full  # what passes the check does not fail in training
    for index in set(range(len(cuts))) - quick:
        assert_array_equal(decode(io.BytesIO(pieces[index])), decode(io.BytesIO(content)))


@given(st.sampled_from(sorted(WHOLE)), st.data())
@settings(max_examples=150)
def test_garbage_is_bad_or_an_image_but_never_an_error(name, data):
    content = bytearray(WHOLE[name][: data.draw(st.integers(8, len(WHOLE[name])))])
    for _ in range(data.draw(st.integers(0, 12))):
        place = data.draw(st.integers(0, min(len(content), 600) - 1))
        content[place] = data.draw(st.integers(0, 255))
    quick, full = (faults(bytes(content), at_least=at_least) for at_least in (None, 1000))
    assert quick.keys() == full.keys()
    assert all("\n" not in why and len(why) < 200 for why in quick.values())


@given(st.binary(max_size=200))
def test_random_bytes_are_not_an_image(content):
    why = faults(content)[0]
    assert why in ("empty file", "not an image") or why.startswith("a damaged TIFF")


def test_progress_counts_every_image():
    counts = []
    find_bad(Streams(b"", WHOLE["image.png"], b""), progress=counts.append)
    assert counts == [1, 2, 3]


def test_a_wrong_size_is_named_with_its_value():
    with pytest.raises(ValueError, match="at_least must be an integer, at least 1, got 0"):
        faults(b"", at_least=0)


def test_an_interrupt_stops_everything_at_once():
    read = []

    class Slow(Streams):
        def load(self, index, at_least=None):
            read.append(index)
            time.sleep(0.01)

    def interrupt(done):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        find_bad(Slow(*[b""] * 1000), progress=interrupt)
    assert len(read) < 20
    with pytest.raises(KeyboardInterrupt):
        faults(KeyboardInterrupt(), *[b""] * 1000)


def test_ctrl_c_gets_through_while_images_are_read():
    code = """if True:
        import time
        from layline.data.index import find_bad
        class Slow:
            names = range(10**6)
            __len__ = lambda self: 10**6
            load = lambda self, index, at_least: time.sleep(0.05)
        find_bad(Slow(), progress=lambda done: print(done, flush=True))
    """
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # a shell starts what runs in its background deaf to Ctrl-C, and children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        assert process.stdout.readline() == b"1\n"
        process.send_signal(signal.SIGINT)
        try:
            _, message = process.communicate(timeout=120)  # against waiting for ever
        finally:
            process.kill()
    assert message.rstrip().endswith(b"KeyboardInterrupt")


def test_the_first_bad_images_are_listed_with_the_count_of_all():
    bad = [BadImage(index, f"{index}.jpg", "empty file") for index in range(25)]
    lines = describe_bad(bad).splitlines()
    assert lines[0] == "25 images cannot be read:"
    assert lines[1:21] == [f"  {index}.jpg: empty file" for index in range(20)]
    assert lines[21:] == [
        "  … and 5 more",
        "Mend or remove them, or leave them out with --skip-bad",
    ]
    assert describe_bad(bad[:1]).splitlines()[:2] == [
        "1 image cannot be read:",
        "  0.jpg: empty file",
    ]
    assert len(describe_bad(bad, limit=3).splitlines()) == 6
    assert describe_bad([]) == "every image can be read"
