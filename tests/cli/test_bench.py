"""``layline bench``, as a user meets it."""

import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from layline import heads
from layline.bench.statistics import select_runs
from layline.bench.store import read_results
from layline.bench.tables import Column, Entry, Table
from layline.cli.bench import show_table

METHODS = ("hard-linear", "classification")


def write_ratings(path):
    x = np.random.default_rng(0).normal(size=(60, 2))
    grade = np.digitize(x.sum(axis=1), [-0.7, 0.7])
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "grade": grade}).to_csv(path, index=False)
    return path


@pytest.fixture
def ratings(tmp_path):
    return write_ratings(tmp_path / "ratings.csv")


@pytest.fixture
def bench(tmp_path, monkeypatch, layline):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return lambda *arguments: layline("bench", *arguments)


@pytest.fixture
def without_report(monkeypatch):
    """Do not draw figures and the page, which takes longer than the runs."""
    monkeypatch.setattr("layline.reports.bench.write_bench_figures", lambda *_: None)
    monkeypatch.setattr("layline.reports.bench.write_bench_report", lambda *_: None)


def small(ratings, *more) -> list[str]:
    settings = ["data.options.label=grade", "head.dim=4", "training.epochs=2"]
    sets = [part for setting in settings for part in ("--set", setting)]
    return ["table", "--root", str(ratings), *sets, "--jobs", "1", "--recipe", "paper", *more]


def test_a_comparison_from_the_command_line(bench, ratings, tmp_path):
    more = ["--methods", ",".join(METHODS), "--decode", "mode,median", "--seeds", "2", "--latex"]
    baseline = ["--baseline", "sklearn.linear_model:LogisticRegression(C=0.5)"]
    found = bench(*small(ratings, *more, *baseline, "--out", "out [b]"))
    assert found.code == 0, found.err
    out = tmp_path / "out [b]"
    frame = read_results(out)
    assert len(frame) == 3 * 2 * 2
    assert (frame["error"] == "").all()
    names = {"leaderboard", "mae", "accuracy", "ranks", "against-reference"}
    assert {path.name for path in (out / "tables").iterdir()} == {
        f"{name}.{ending}" for name in names for ending in ("md", "csv", "tex")
    }
    for name in ("grid.toml", "environment.json", "report.html"):
        assert (out / name).stat().st_size > 0
    lines = {line.strip("| ").split(" ")[0]: line for line in found.out.splitlines()}
    table = pd.read_csv(out / "tables" / "mae.csv").set_index(["row", "column"])["mean"]
    for method, mean in frame[frame["decode"] == "median"].groupby("method")["mae"].mean().items():
        assert f"{mean:.3f}" in lines[method]
        assert table[method, "ratings"] == pytest.approx(mean)
    again = bench("--out", "out [b]")
    assert "6 runs, 6 finished before" in again.err
    assert again.out == found.out


def test_tuning_uses_the_best_validation_score(bench, ratings, tmp_path, without_report):
    rates = "training.head_learning_rate=[0.01, 0.1, 0.3]"
    tune = ["--tune", rates, "--methods", "classification", "--seeds", "4", "--out", "out"]
    command = small(ratings, *tune, "--tune-seeds", "2")
    assert bench(*command, "--dry-run").out.splitlines()[-2:] == [
        "6 runs",
        "The other seeds follow with the best settings.",
    ]
    assert bench(*command).code == 0
    frame = read_results(tmp_path / "out")
    assert len(frame) == 8
    chosen = select_runs(frame, [0, 1])
    assert sorted(chosen["seed"]) == ["0", "1", "2", "3"]
    tries = frame[frame["seed"].isin(["0", "1"])].groupby("setting", sort=False)
    assert set(chosen["setting"]) == {tries["criterion"].mean().idxmin()}


def test_a_failed_run_is_in_the_table_and_the_exit_code(bench, ratings, tmp_path):
    more = ["--methods", "classification,hard-linear", "--set", "head.options.norm=2.0"]
    found = bench(*small(ratings, *more, "--out", "out"))
    assert found.code == 3
    assert "1 run failed. The same command tries again:" in found.err
    text = (tmp_path / "out" / "tables" / "mae.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("| classification")]
    assert "failed: " in line


def test_a_dry_run_lists_and_writes_nothing(bench, ratings, tmp_path):
    found = bench(*small(ratings, "--methods", "all", "--seeds", "5", "--dry-run", "--out", "o"))
    assert found.out.splitlines()[-1] == f"{5 * len(heads.names())} runs"
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "No data given"),
        (["photo-quality", "--seeds", "many"], "--seeds needs a number of seeds"),
        (["photo-quality", "--seeds", "0"], "--seeds needs a number of seeds from 1 to 10,000"),
        (["photo-quality", "--seeds", "1000000000"], "from 1 to 10,000"),
        (["photo-quality", "--methods", "hard-liner"], "hard-linear"),
        (["photo-qualty"], "photo-quality"),
        (["photo-quality", "--tune", "head.dim=3"], "needs a list"),
        (["--grid", "nowhere.toml"], "nowhere.toml"),
        (["photo-quality", "--set", "training.epoch=1"], "training.epoch"),
    ],
)
def test_a_mistake_is_one_line(refused, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused("bench", *arguments)


def test_the_folder_of_a_run_is_refused_and_unchanged(refused, bench, ratings, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("config.toml", "environment.json", "test.json", "report.html"):
        (run / name).write_text(f"{name} of a run")
    before = {path: path.read_text() for path in run.iterdir()}
    message = refused("bench", *small(ratings, "--methods", "sord", "--out", run))
    assert "contains other files" in message
    assert {path: path.read_text() for path in run.iterdir()} == before


def test_some_data_sets_of_a_grid_may_run_first(bench, ratings, tmp_path, without_report):
    grid = 'methods = ["sord", "emd"]\nsettings = { training = { epochs = 1 } }\n'
    for name, share in {"one": 0.2, "two": 0.3}.items():
        grid += f'[[data]]\nname = "{name}"\nsource = "table"\nroot = "{ratings}"\n'
        grid += f'options = {{ label = "grade", test = {share} }}\n'
    Path("grid.toml").write_text(grid)
    command = ("--grid", "grid.toml", "--out", "out", "--jobs", "1")
    first = bench(*command, "--only", "one")
    assert first.code == 0, first.err
    assert set(read_results(tmp_path / "out")["data"]) == {"one"}
    rest = bench("--out", "out", "--jobs", "1")
    assert "4 runs, 2 finished before" in rest.err
    assert set(read_results(tmp_path / "out")["data"]) == {"one", "two"}


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.05)


def family(mark: str) -> list[str]:
    """List the living processes that inherited a mark in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and mark.encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_text().replace("\0", " ")[:200])
    return found


LONG = ("--set", "training.epochs=60", "--methods", ",".join(METHODS))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, layline):
    """The results of a grid that was not stopped."""
    folder = tmp_path_factory.mktemp("whole")
    out = ("--out", str(folder / "out"))
    assert layline("bench", *small(write_ratings(folder / "ratings.csv"), *LONG, *out)).code == 0
    return read_results(folder / "out").drop(columns="seconds")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "everyone"),
    [
        (signal.SIGTERM, False),
        (signal.SIGINT, True),
        (signal.SIGUSR1, True),
        (signal.SIGKILL, False),
    ],
)
def test_a_stopped_bench_leaves_no_process_and_is_resumed(
    bench, ratings, tmp_path, undisturbed, without_report, number, everyone
):
    """After a signal to the command or to all of its processes, and after it was killed."""
    mark = f"LAYLINE_TEST_FAMILY={uuid.uuid4().hex}"
    grid = small(ratings, *LONG, "--out", "out", "--set", "training.checkpoint_minutes=60")
    process = subprocess.Popen(
        [sys.executable, "-m", "layline", "bench", *grid, "--jobs", "2"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | dict([mark.split("=")]),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        histories = lambda: len(list(tmp_path.glob("out/cells/*/history.jsonl")))  # noqa: E731
        wait_for(lambda: process.poll() is not None or histories() == 2)
        assert process.poll() is None
        assert len(family(mark)) > 2
        (os.killpg if everyone else os.kill)(process.pid, number)
        _, log = process.communicate(timeout=300)
    finally:
        process.kill()
    if number != signal.SIGKILL:
        assert process.returncode == 130, log
        assert "of 2 runs finished. Run the same command to resume." in log
        assert "layline/bench" not in log  # no traceback of ours; loky's tracker may print one
    wait_for(lambda: not family(mark))
    for cell in tmp_path.glob("out/cells/[!.]*"):
        epochs = len((cell / "history.jsonl").read_text().splitlines())
        # a run that was stopped between its last epoch and its result is repeated
        if not (cell / "outcome.json").exists() and epochs < 60:
            state = max((cell / "state").glob("epoch-*"))  # every epoch is saved
            assert state.name.startswith(f"epoch-{epochs + 1:05}-")
    again = bench(*grid)
    assert again.code == 0, again.err
    found = read_results(tmp_path / "out").drop(columns="seconds")
    pd.testing.assert_frame_equal(found, undisturbed)


@pytest.mark.parametrize("width", [30, 60, 80, 300])
def test_a_column_is_shown_whole_or_not_at_all(capsys, monkeypatch, width):
    entries = tuple(Entry(mean=1.234, n=3, is_best=True) for _ in range(9))
    columns = tuple(Column(f"C{number}") for number in range(9))
    monkeypatch.setenv("COLUMNS", str(width))
    show_table(Table("A caption", ("line", "arc"), columns, (entries, entries)))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert max(map(len, lines)) <= width
    assert len({line.count("|") for line in lines}) == 1
    assert (lines[0].count("|") == 11) == (width == 300)
