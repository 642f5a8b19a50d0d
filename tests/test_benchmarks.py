import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "heads.py"


@pytest.mark.slow
def test_the_benchmark_of_heads_writes_its_table(tmp_path):
    options = "--classes 3 5 --samples 4 --dim 6 --repetitions 1 --heads hard-linear arc"
    command = [sys.executable, SCRIPT, *options.split(), "--out", tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    frame = pd.read_csv(tmp_path / "speed.csv")
    assert set(frame["K"]) == {3, 5}
    assert set(frame["method"]) == {"classification", "hard-linear", "arc"}
    assert (frame["train_ms"] > 0).all()
    assert (frame.loc[frame["method"] == "classification", "train_ratio"] == 1).all()
