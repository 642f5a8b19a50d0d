import subprocess
import sys
from importlib.metadata import version

import pytest

import layline


@pytest.mark.parametrize("name", layline.__all__)
def test_every_public_name_is_there(name):
    assert getattr(layline, name) is not None
    assert name in dir(layline)


def test_the_version_is_that_of_the_package():
    assert layline.__version__ == version("layline")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'metricks'"):
        _ = layline.metricks


@pytest.mark.parametrize("heavy", ["sklearn", "scipy", "pandas", "matplotlib", "timm", "plotly"])
def test_importing_does_not_bring_what_a_pytorch_loop_does_not_need(heavy):
    code = f"import sys, layline; sys.exit('{heavy}' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_prediction_does_not_wait_for_the_statistics_of_an_evaluation():
    code = "import sys, layline.evaluation; sys.exit('scipy.stats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_importing_draws_no_random_numbers_and_prints_nothing():
    code = (
        "import torch; torch.manual_seed(1); a = torch.get_rng_state(); import layline; "
        "assert torch.equal(a, torch.get_rng_state())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
