"""``layline serve``: what it says before it serves. ``tests/serve`` has the rest."""

import socket
import sys

import pytest


def test_a_port_in_use_is_a_sentence(refused, graded_run):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert f"port must be free, got {port}: another" in refused(
            "serve", graded_run, "--port", port
        )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--host", "no.such.host.invalid"], "host must be an address of this machine, got 'no."),
        (["--host", "192.0.2.1"], "host must be an address of this machine, got '192.0.2.1'"),
        (["--coverage", "2"], "coverage must be a number between 0 and 1, got 2.0"),
        (["--coverage", "0.999"], "coverage 0.999 must have at least 999 calibration samples"),
        (["--review", "many"], "review must be a share such as 20% or 0.2, got many"),
        (["--decode", "modus"], "decode must be"),
        (["--max-mb", "0"], "max_mb must be a finite number above 0, got 0.0"),
        (["--max-pixels", "1000000000"], "max_pixels must be at most"),
        (["--device", "gpu9"], "device must be one that PyTorch finds here, got 'gpu9'"),
    ],
)
def test_a_wrong_option_is_a_sentence(refused, graded_run, arguments, sentence):
    assert sentence in refused("serve", graded_run, "--port", 0, *arguments)


def test_what_is_no_run_is_a_sentence(refused, tmp_path, graded_run):
    assert "must be a model file" in refused("serve", tmp_path)
    assert "must be a model file" in refused("serve", tmp_path / "nothing")
    model = graded_run / "best.safetensors"
    assert "review must come with the folder" in refused("serve", model, "--review", "20%")


def test_a_missing_library_is_named_with_its_extra(refused, graded_run, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("layline.serve", "starlette"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    sentence = refused("serve", graded_run)
    assert sentence == "layline: serving a model needs starlette: pip install layline[serve]"


def test_others_are_warned_of(layline, graded_run, monkeypatch):
    """Whoever listens for other machines is told that nobody has to log in."""
    from layline.serve import server

    monkeypatch.setattr(server.uvicorn.Server, "run", lambda *_, **__: None)
    outside = layline("serve", graded_run, "--host", "0.0.0.0", "--port", 0)
    assert "nobody has to log in" in outside.err
    inside = layline("serve", graded_run, "--port", 0)
    assert (inside.code, inside.err) == (0, "")
