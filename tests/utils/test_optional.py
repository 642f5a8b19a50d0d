"""What happens without the libraries that only some heads need."""

import sys
import warnings

import pytest

from layline.heads import create
from layline.utils.optional import require


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [
        ("gp-dnnor", "gpytorch", "gp"),
        ("proxy-anchor", "pytorch_metric_learning", "metric"),
        ("soft-triple", "pytorch_metric_learning", "metric"),
    ],
)
def test_a_missing_library_is_named_with_what_to_install(monkeypatch, name, library, extra):
    for module in [m for m in sys.modules if m.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)  # import then fails as if it were not there
    with pytest.raises(ImportError, match=rf"{name} needs {library}: pip install layline\[{extra}"):
        create(name, 4, 6)


def test_other_warnings_of_an_import_are_not_silenced(monkeypatch, tmp_path):
    module = "import warnings; warnings.warn('something else', DeprecationWarning)"
    (tmp_path / "noisy_library.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        require("noisy_library", extra="x", needed_by="y")
    assert [str(warning.message) for warning in caught] == ["something else"]
