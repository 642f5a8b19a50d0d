"""Each tutorial is a script that runs, and the site shows it whole."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
TUTORIALS = [path for path in SCRIPTS if path.stem != "my_plugin"]  # used in test_plugins.py
ARGUMENTS = {"layouts": ["layouts.png", "300"]}  # fewer samples than those of the README's picture


@pytest.mark.slow
@pytest.mark.parametrize("script", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(script, tmp_path):
    """With fewer epochs; ``make docs`` runs it as it is."""
    place = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    text = script.read_text(encoding="utf-8")
    quick = tmp_path / script.name
    quick.write_text(re.sub(r"\bepochs=\d+", "epochs=2", text), encoding="utf-8")
    command = [sys.executable, str(quick), *ARGUMENTS.get(script.stem, ())]
    result = subprocess.run(
        command, cwd=tmp_path, env=place, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout or list(tmp_path.glob("*.png"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_parts_of_a_tutorial_are_the_script(script):
    """No line of code is lost between the script and its page, and none is called text."""
    split = runpy.run_path(str(ROOT / "docs" / "_site" / "hooks.py"))["split_tutorial"]
    parts = split(script)
    lines = [line for kind, text in parts if kind == "code" for line in text.splitlines()]
    source = script.read_text(encoding="utf-8")
    after = source.split('"""', 2)[2].splitlines()
    assert [line for line in lines if line] == [
        line for line in after if line and not (line.startswith("#") and line not in lines)
    ]
    assert parts[0][1].startswith("# ")
    for kind, text in parts:
        if kind == "code":
            compile(text, str(script), "exec")
