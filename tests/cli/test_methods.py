import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from layline import __version__, heads
from layline.cli import app


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_every_method_is_listed_with_its_summary_and_reference_by_family():
    output = run("methods").output
    for name, spec in heads.HEADS.items():
        assert f"  {name} " in output
        assert spec.summary in output
        assert spec.reference in output
    families = [line for line in output.splitlines() if not line.startswith(" ")]
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
