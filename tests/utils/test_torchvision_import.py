"""An import is tried in a fresh interpreter: what torch declares lasts for the process."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from layline import torchvision_import
from layline.utils.torchvision_import import import_timm, import_torchvision


def run(code):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.fixture
def declared(monkeypatch):
    """The schemas that would be declared; no operator is there, and none loads."""
    schemas = []

    def stop(path):
        raise OSError(f"could not load {path}")

    operators = SimpleNamespace(load_library=stop, torchvision=SimpleNamespace())
    library = SimpleNamespace(define=lambda schema: schemas.append(schema.partition("(")[0]))
    monkeypatch.setattr(torchvision_import, "_OPERATORS", operators)
    monkeypatch.setattr("torch.library.Library", lambda *_: library)
    monkeypatch.setattr(torchvision_import, "_DECLARED", [])
    return SimpleNamespace(schemas=schemas, operators=operators)


@pytest.mark.slow
def test_timm_imports_afterwards_from_any_thread():
    code = (
        "from layline import torchvision_import as t\n"
        "from concurrent.futures import ThreadPoolExecutor as Pool\n"
        "with Pool(4) as pool: got = set(pool.map(lambda _: t.import_timm(), range(8)))\n"
        "import torch, timm, torchvision; from torchvision.transforms import v2\n"
        "assert got == {timm} and t.import_torchvision() is torchvision\n"
        "print(*v2.Resize(4)(torch.zeros(3, 8, 8)).shape, len(t._DECLARED) <= 1)"
    )
    assert run(code) == ["3", "4", "4", "True"]


@pytest.mark.slow
def test_an_import_that_failed_before_can_be_repeated():
    code = (
        "try: import torchvision\n"
        "except RuntimeError: pass\n"
        "from layline import torchvision_import as t\n"
        "print(t.import_torchvision().__name__)"
    )
    assert run(code) == ["torchvision"]


def test_both_operators_are_declared_where_none_load(declared):
    torchvision_import.declare_missing()
    assert declared.schemas == ["nms", "qnms"]
    assert len(torchvision_import._DECLARED) == 1  # kept alive


def test_nothing_is_declared_where_the_operators_load(declared):
    loaded = []
    declared.operators.load_library = loaded.append
    torchvision_import.declare_missing()
    assert declared.schemas == []
    assert len(loaded) == 1


def test_only_what_is_missing_is_declared(declared):
    declared.operators.torchvision.nms = "from somebody else"
    torchvision_import.declare_missing()
    assert declared.schemas == ["qnms"]


def test_another_error_while_loading_is_not_silenced(declared):
    def stop(path):
        raise MemoryError("no room")

    declared.operators.load_library = stop
    with pytest.raises(MemoryError, match="no room"):
        torchvision_import.declare_missing()


@pytest.mark.parametrize(
    ("library", "function"), [("torchvision", import_torchvision), ("timm", import_timm)]
)
def test_a_missing_library_is_named_with_what_to_install(monkeypatch, library, function):
    import_torchvision()
    monkeypatch.setitem(sys.modules, library, None)  # import then fails as if it were not there
    with pytest.raises(ImportError, match=rf"vgg16 needs {library}: pip install layline\[images\]"):
        function("vgg16")
