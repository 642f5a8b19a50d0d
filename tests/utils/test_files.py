"""Atomic writing."""

import errno
import json
import resource
import signal

import pytest

from layline.utils.files import write_json, write_text


def test_a_name_that_is_no_utf8_is_escaped_and_all_else_is_readable(tmp_path):
    values = {"class": "grün", "path": "\udcff.jpg", "face": "😀"}
    write_json(tmp_path / "a.json", values)
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    assert json.loads(text) == values
    assert "grün" in text
    assert "\\udcff" in text


def test_a_disk_without_room_keeps_the_old_file_and_names_the_new_one(tmp_path):
    write_text(tmp_path / "a.txt", "old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        with pytest.raises(OSError, match="nothing was left half-written") as caught:
            write_text(tmp_path / "a.txt", "x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG
    assert caught.value.filename == str(tmp_path / "a.txt")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.txt": "old"}
