import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from layline import __version__, heads
from layline.cli import app


def run(*arguments):
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("name", heads.names())
def test_every_method_is_listed_with_its_summary_and_reference(name):
    spec, output = heads.HEADS[name], run("methods").output
    assert f"  {name} " in output
    assert spec.summary in output
    assert spec.reference in output


def test_families_stand_together():
    lines = run("methods").output.splitlines()
    families = [line for line in lines if not line.startswith(" ")]
    assert len(families) == len(set(families)) == len({s.family for s in heads.HEADS.values()})


def test_programs_get_json():
    entries = json.loads(run("methods", "--json").output)
    assert [entry["name"] for entry in entries] == list(heads.names())
    assert set(entries[0]) == {"name", "family", "summary", "reference", "decode", "export"}


def test_the_installed_command_answers():
    command = Path(sys.executable).parent / "layline"
    result = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, f"layline {__version__}\n")


def test_a_wrong_command_is_answered_with_usage():
    result = run("method")
    assert result.exit_code == 2
    assert "methods" in result.output
