"""``layline serve``: messages before it serves. ``tests/serve`` has the rest."""

import socket
import sys

import pytest


def test_a_port_in_use_is_reported(refused, graded_run):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        message = refused("serve", graded_run, "--port", port)
    assert "already in use" in message
    assert str(port) in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "192.0.2.1"], "192.0.2.1"),
        (["--coverage", "2"], "coverage must be a number between 0 and 1, got 2.0"),
        (["--coverage", "0.999"], "needs at least 999 calibration samples"),
        (["--decode", "modus"], "decode must be"),
        (["--device", "gpu9"], "gpu9"),
    ],
)
def test_a_wrong_option_is_reported(refused, graded_run, arguments, message):
    assert message in refused("serve", graded_run, "--port", 0, *arguments)


def test_a_missing_model_is_reported(refused, tmp_path, graded_run):
    assert "There is no model file" in refused("serve", tmp_path, "--port", 0)
    model = graded_run / "best.safetensors"
    assert "review needs the folder" in refused("serve", model, "--port", 0, "--review", 0.2)


def test_a_missing_library_is_named_with_its_extra(refused, graded_run, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("layline.serve", "fastapi"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    message = refused("serve", graded_run)
    assert "fastapi" in message
    assert "pip install layline[serve]" in message


def test_listening_on_other_addresses_prints_a_warning(layline, graded_run, monkeypatch):
    import uvicorn

    apps = []
    monkeypatch.setattr(uvicorn, "Server", lambda config: apps.append(config.app) or Stub())
    outside = layline("serve", graded_run, "--host", "0.0.0.0", "--port", 0)
    assert "There is no login" in outside.err
    inside = layline("serve", graded_run, "--port", 0, "--allow-host", "grades.example")
    assert (inside.code, inside.err) == (0, "")
    hosts = [app.user_middleware[0].kwargs["allowed_hosts"] for app in apps]
    assert socket.gethostname() in hosts[0]
    assert set(hosts[1]) == {"localhost", "127.0.0.1", "[::1]", "grades.example"}


class Stub:
    def run(self, **_):
        pass
