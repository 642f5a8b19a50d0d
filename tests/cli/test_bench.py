"""``layline bench``, as a user meets it."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from layline import heads
from layline.bench import runner
from layline.bench.results import read_environments, read_results, select_runs
from layline.bench.store import Store
from layline.bench.tables import Column, Entry, Table
from layline.cli import app
from layline.cli.bench import show_table


@pytest.fixture
def ratings(tmp_path):
    return write_ratings(tmp_path / "ratings.csv")


def write_ratings(path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    grade = np.digitize(x.sum(axis=1), [-0.7, 0.7])
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "grade": grade}).to_csv(path, index=False)
    return path


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments):
        return CliRunner().invoke(app, ["bench", *map(str, arguments)])

    return call


@pytest.fixture
def without_report(monkeypatch):
    """Leave out figures and page, which take longer than the runs, where nobody looks at them."""
    monkeypatch.setattr("layline.reports.bench.write_bench_figures", lambda out, only: None)
    monkeypatch.setattr("layline.reports.bench.write_bench_report", lambda out, page, only: None)


def small(ratings, *more) -> list[str]:
    settings = ["data.options.label=grade", "head.dim=4", "training.epochs=2"]
    sets = [part for setting in settings for part in ("--set", setting)]
    return ["table", "--root", str(ratings), *sets, "--jobs", "1", "--recipe", "paper", *more]


@pytest.mark.slow
def test_a_comparison_from_the_command_line(bench, ratings, tmp_path):
    methods = ["--methods", "hard-linear,classification", "--decode", "mode,median"]
    result = bench(*small(ratings, *methods, "--seeds", "2", "--out", "out"))
    assert result.exit_code == 0, result.output
    out = tmp_path / "out"
    frame = read_results(out)
    assert len(frame) == 2 * 2 * 2
    assert set(frame["data"]) == {"ratings"}
    assert (frame["error"] == "").all()
    found = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    means = frame[frame["decode"] == "median"].groupby("method")["mae"].mean()
    for method, mean in means.items():
        assert f"{mean:.3f}" in found[method]
    for name in ("grid.toml", "environment.json", "report.html", "figures/mae-median.png"):
        assert (out / name).stat().st_size > 0
    table = pd.read_csv(out / "tables" / "mae-median.csv").set_index(["row", "column"])["mean"]
    medians = frame[frame["decode"] == "median"].groupby("method")["mae"].mean()
    for method, mean in medians.items():
        assert table[method, "ratings"] == pytest.approx(mean)


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_photographs_are_decoded_by_workers_within_the_process_of_a_run(bench, photos, tmp_path):
    source = ["folder", "--root", photos, "--backbone", "convnet", "--methods", "sord"]
    classes = ",".join(path.name for path in sorted(photos.iterdir()))
    options = [
        "training.epochs=1",
        "head.dim=4",
        "data.workers=1",
        f"data.options.classes={classes}",
    ]
    settings = [word for option in options for word in ("--set", option)]
    found = bench(*source, *settings, "--jobs", 2, "--out", tmp_path / "grid")
    assert found.exit_code == 0, found.output
    assert read_results(tmp_path / "grid")["mae"].notna().all()


def test_the_folder_alone_goes_on_with_the_grid(bench, ratings):
    methods = ["--methods", "classification", "--seeds", "0,3", "--out", "out [b]"]
    assert bench(*small(ratings, *methods)).exit_code == 0
    again = bench("--out", "out [b]")
    assert again.exit_code == 0, again.output
    assert "2 runs, 2 of them finished before" in again.output
    assert "Tables, figures and report.html are in out [b]\n" in again.output


def test_a_grid_that_was_killed_at_once_goes_on_from_its_folder(bench, ratings, monkeypatch):
    def killed(*arguments, **options):
        raise SystemExit(137)

    with monkeypatch.context() as context:
        context.setattr("layline.bench.runner.run_grid", killed)
        command = small(ratings, "--methods", "classification", "--seeds", "0,3", "--out", "out")
        assert bench(*command).exit_code == 137
    again = bench("--out", "out", "--dry-run")
    assert again.exit_code == 0, again.output
    assert again.stdout.splitlines()[-1] == "2 runs"


def test_some_data_sets_of_a_grid_leave_the_whole_of_it_in_the_folder(bench, ratings, monkeypatch):
    grid = 'methods = ["classification"]\nseeds = [0]\n' + "".join(
        f'[[data]]\nname = "{name}"\nsource = "table"\nroot = "{ratings}"\n'
        f'options = {{ label = "grade", test = {share} }}\n'
        for name, share in {"one": 0.2, "two": 0.3}.items()
    )
    Path("grid.toml").write_text(grid)

    def killed(*arguments, **options):
        raise SystemExit(137)

    monkeypatch.setattr("layline.bench.runner.run_grid", killed)
    assert bench("--grid", "grid.toml", "--out", "out", "--only", "one").exit_code == 137
    written = Path("out", "grid.toml").read_text()
    assert bench("--out", "out", "--dry-run").stdout.splitlines()[-1] == "2 runs"
    with Store(Path("out")).alone():
        other = bench("--grid", "grid.toml", "--seeds", 3, "--out", "out")
    assert "out must be used by one grid at a time" in other.output
    assert Path("out", "grid.toml").read_text() == written


def test_the_current_folder_has_a_name_too(bench, ratings, tmp_path):
    result = bench("folder", "--root", ".", "--methods", "sord", "--dry-run")
    assert tmp_path.name in result.stdout


@pytest.mark.usefixtures("without_report")
def test_tuning_takes_what_validation_prefers(bench, ratings, tmp_path):
    tune = ["--tune", "training.head_learning_rate=[0.01, 0.3]", "--methods", "classification"]
    result = bench(*small(ratings, *tune, "--seeds", "3", "--out", "out"))
    assert result.exit_code == 0, result.output
    frame = read_results(tmp_path / "out")
    assert len(frame) == 6
    chosen = select_runs(frame)
    assert len(chosen) == 3
    for seed, tries in frame.groupby("seed"):
        (kept,) = chosen[chosen["seed"] == seed].to_dict("records")
        assert kept["validation_mae"] == tries["validation_mae"].min()
        best = tries.loc[tries["validation_mae"].idxmin()]
        assert (kept["setting"], kept["mae"]) == (best["setting"], best["mae"])


@pytest.mark.slow
def test_few_seeds_may_choose_the_setting_of_all(bench, ratings, tmp_path):
    rates = "[0.01, 0.1, 0.3]"
    tune = ["--tune", f"training.head_learning_rate={rates}", "--methods", "classification"]
    command = small(ratings, *tune, "--seeds", "4", "--tune-seeds", "2", "--out", "out")
    listed = bench(*command, "--dry-run").stdout.splitlines()
    assert listed[-2:] == [
        "6 runs",
        "2 runs of the other seeds follow, each with the setting that is chosen",
    ]
    result = bench(*command)
    assert result.exit_code == 0, result.output
    frame = read_results(tmp_path / "out")
    assert len(frame) == 8
    chosen = select_runs(frame, [0, 1])
    assert sorted(chosen["seed"]) == ["0", "1", "2", "3"]
    tries = frame[frame["seed"].isin(["0", "1"])].groupby("setting", sort=False)
    assert set(chosen["setting"]) == {tries["validation_mae"].mean().idxmin()}
    assert "up to 3 settings on each data set with 2 seeds, for all seeds" in (
        tmp_path / "out" / "report.html"
    ).read_text(encoding="utf-8")


def test_a_failed_run_shows_in_the_table_and_the_exit_code(bench, ratings, tmp_path):
    tune = ["--methods", "classification,hard-linear", "--set", "head.options.norm=2.0"]
    result = bench(*small(ratings, *tune, "--out", "out"))
    assert result.exit_code == 3
    assert "1 run failed; the same command tries it again:" in result.output
    assert "ratings classification paper mlp 0: " in result.output
    text = (tmp_path / "out" / "tables" / "mae-mode.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("| classification")]
    assert "failed: " in line
    assert "Runs that failed" in (tmp_path / "out" / "report.html").read_text()


def test_a_dry_run_lists_and_runs_nothing(bench, ratings, tmp_path):
    result = bench(*small(ratings, "--methods", "all", "--seeds", "5", "--dry-run", "--out", "o"))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == f"{5 * len(heads.names())} runs"
    assert not (tmp_path / "o").exists()


def test_a_path_is_recognised_and_its_labels_may_be_said(bench, ratings, tmp_path):
    given = ("--label", "grade", "--classes", "2,1,0", "--methods", "coral")
    result = bench(ratings, *given, "--dry-run")
    assert result.exit_code == 0, result.output
    assert result.stderr == f"{ratings} is taken as table: no column names images\n"
    key, name, *_ = result.stdout.split()
    assert name == "ratings"
    assert bench("table", "--root", ratings, *given, "--dry-run").stdout.split()[0] == key
    other = bench(ratings, "--label", "grade", "--methods", "coral", "--dry-run")
    assert other.stdout.split()[0] != key


@pytest.mark.parametrize("grouped", [("--group", "owner"), ("--group-by", r"\d")])
def test_groups_are_part_of_what_is_run(bench, tmp_path, grouped):
    """Which samples stay together decides the split, for every source alike."""
    by_column = grouped[0] == "--group"
    if by_column:
        frame = pd.read_csv(write_ratings(tmp_path / "data.csv"))
        frame.assign(owner=np.arange(60) // 3).to_csv(tmp_path / "data.csv", index=False)
        given = (tmp_path / "data.csv", "--label", "grade")
    else:
        for name in ("low", "high"):
            (tmp_path / "data" / name).mkdir(parents=True)
            for index in range(10):
                image = Image.new("RGB", (8, 8), (index, 0, 0))
                image.save(tmp_path / "data" / name / f"{index}.png")
        given = (tmp_path / "data", "--classes", "low,high", "--backbone", "convnet")
    command = (*given, "--methods", "coral", "--dry-run")
    plain, own = bench(*command), bench(*command, *grouped)
    assert (plain.exit_code, own.exit_code) == (0, 0), plain.output + own.output
    assert plain.stdout.split()[0] != own.stdout.split()[0]


def test_verifying_notices_what_the_times_of_files_hide(bench, ratings, monkeypatch):
    def key(*more):
        found = bench(ratings, "--label", "grade", "--methods", "coral", "--dry-run", *more)
        assert found.exit_code == 0, found.output
        return found.stdout.split()[0]

    monkeypatch.setattr("layline.data.file_digests.stamp_of", lambda path: (1, 1, 1, 1))
    before = key()
    ratings.write_text(ratings.read_text().replace("0", "1"))
    assert key() == before
    assert key("--verify") != before
    assert key() != before  # what was found is known from then on


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "SOURCES must be given"),
        (["photo-quality", "--seeds", "many"], "--seeds must be a number of seeds or a list"),
        (["photo-quality", "--seeds", "0"], "--seeds must be at least one seed, got 0"),
        (["photo-quality", "--seeds", "-2"], "--seeds must be at least one seed, got -2"),
        (["photo-quality", "--seeds", "1,1"], "seeds must be different, got 1, 1"),
        (["photo-quality", "--methods", "hard-liner"], "did you mean hard-linear"),
        (["photo-quality", "--recipe", "papier"], "recipes must be a known name, got 'papier'"),
        (["photo-quality", "--decode", "middle"], "decodings must be a known name"),
        (["photo-qualty"], "did you mean photo-quality"),
        (["photo-quality", "--tune", "head.dim=3"], "--tune must be a setting with a list"),
        (["photo-quality", "--engine", "dusk", "--set", "training.epochs=1"], "did you mean dask"),
        (["photo-quality", "--address", "tcp://x:1"], "address must be left out"),
        (["--grid", "nowhere.toml"], "nowhere.toml"),
        (["photo-quality", "--set", "training.epoch=1"], "training.epoch: is no setting"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(bench, arguments, message):
    result = bench(*arguments)
    assert result.exit_code == 1
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("library", ["pandas", "matplotlib", "plotly", "jinja2"])
def test_a_missing_library_is_said_before_the_first_run(
    bench, ratings, tmp_path, monkeypatch, library
):
    monkeypatch.setitem(sys.modules, library, None)
    result = bench(*small(ratings, "--methods", "classification", "--out", "out"))
    assert result.exit_code == 1
    assert f"layline bench needs {library}: pip install layline[report]" in result.output
    assert not (tmp_path / "out").exists()


def test_ctrl_c_says_how_to_go_on(bench, ratings, tmp_path):
    def press() -> None:
        wait_for(lambda: list(tmp_path.glob("out/cells/*/state/*")))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    endless = ("--set", "training.epochs=100000", "--set", "training.checkpoint_minutes=0")
    stopped = bench(*small(ratings, "--methods", "classification", "--out", "out"), *endless)
    thread.join()
    assert stopped.exit_code == 130
    assert "Stopped; 0 of 1 run is done. The same command goes on." in stopped.output
    assert "Traceback" not in stopped.output
    assert bench("--out", "out", "--dry-run").stdout.splitlines()[-1] == "1 run"


def family(mark: str) -> list[str]:
    """List the living processes that inherited a mark in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state = (place / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and mark.encode() in (place / "environ").read_bytes():
                found.append((place / "cmdline").read_text().replace("\0", " ")[:200])
    return found


def wait_for(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.1)


METHODS = ("hard-linear", "classification")
LONG = ("--set", "training.epochs=60")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The results of a grid that was not stopped."""
    folder = tmp_path_factory.mktemp("whole")
    methods = ("--methods", ",".join(METHODS))
    out = ("--out", str(folder / "out"))
    command = small(write_ratings(folder / "ratings.csv"), *LONG, *methods, *out)
    assert CliRunner().invoke(app, ["bench", *command]).exit_code == 0
    return read_results(folder / "out").drop(columns="seconds")


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize(
    ("engine", "jobs", "number", "everyone"),
    [
        ("local", 2, signal.SIGTERM, False),
        ("local", 2, signal.SIGUSR1, True),
        ("local", 2, signal.SIGKILL, False),
        ("dask", 1, signal.SIGTERM, False),
        ("ray", 1, signal.SIGTERM, False),
    ],
)
def test_a_stopped_bench_leaves_no_process_and_goes_on(
    bench, ratings, tmp_path, undisturbed, engine, jobs, number, everyone
):
    """By a polite kill, a rude one, or a scheduler that tells everyone; what ran is saved."""
    mark = f"LAYLINE_TEST_FAMILY={uuid.uuid4().hex}"
    methods = METHODS[:jobs]  # all of them are running when it is stopped
    grid = small(ratings, *LONG, "--methods", ",".join(methods), "--out", "out")
    grid += ["--set", "training.checkpoint_minutes=60"]
    command = [
        sys.executable,
        "-m",
        "layline",
        "bench",
        *grid,
        "--jobs",
        str(jobs),
        "--engine",
        engine,
    ]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | dict([mark.split("=")]),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        wait_for(
            lambda: (
                process.poll() is not None
                or len(list(tmp_path.glob("out/cells/*/history.jsonl"))) == jobs
            )
        )
        assert process.poll() is None
        assert len(family(mark)) > jobs
        (os.killpg if everyone else os.kill)(process.pid, number)
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    if number != signal.SIGKILL:
        assert process.returncode == 130, said
        runs = "2 runs are" if jobs == 2 else "1 run is"
        assert f"of {runs} done. The same command goes on." in said
        assert "Traceback" not in said
    wait_for(lambda: not family(mark), 30)
    for cell in tmp_path.glob("out/cells/[!.]*"):
        if not (cell / "outcome.json").exists():
            state = max((cell / "state").glob("epoch-*"))  # no epoch was made that is not saved
            epochs = len((cell / "history.jsonl").read_text().splitlines())
            assert state.name.startswith(f"epoch-{epochs + 1:05}-")
    again = bench(*grid)
    assert again.exit_code == 0, again.output
    found = read_results(tmp_path / "out").drop(columns="seconds")
    expected = undisturbed[undisturbed["method"].isin(methods)]
    pd.testing.assert_frame_equal(found, expected.reset_index(drop=True))


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_results_of_two_machines_become_one(bench, ratings, tmp_path):
    """They know the same data by their content, wherever these lie."""
    elsewhere = tmp_path / "elsewhere.csv"
    elsewhere.write_bytes(ratings.read_bytes())
    one = ("--methods", "classification", "--seeds", "1", "--out", "one")
    assert bench(*small(ratings, *one)).exit_code == 0
    other = ("--methods", "classification", "--seeds", "0,1", "--out", "other")
    assert bench(*small(elsewhere, *other)).exit_code == 0
    both = small(ratings, "--methods", "classification", "--seeds", "2", "--out", "one")
    result = bench(*both, "--merge", "other")
    assert result.exit_code == 0, result.output
    assert "1 run taken from other\n2 runs, 2 of them finished before" in result.output
    assert set(read_results(tmp_path / "one")["seed"]) == {"0", "1"}


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_a_grid_goes_on_from_its_published_table(bench, ratings, tmp_path):
    command = small(ratings, "--methods", "classification", "--decode", "mode,median,mean")
    assert bench(*command, "--seeds", "1", "--out", "one").exit_code == 0
    before = read_results(tmp_path / "one")
    shutil.rmtree(tmp_path / "one" / "cells")
    result = bench(*command, "--seeds", "2", "--out", "two", "--merge", "one")
    assert result.exit_code == 0, result.output
    assert "1 run taken from one\n2 runs, 1 of them finished before" in result.output
    after = read_results(tmp_path / "two")
    pd.testing.assert_frame_equal(after[after["seed"] == "0"].reset_index(drop=True), before)
    _, environments = read_environments(tmp_path / "two")
    assert {each["threads"] for each in environments} == {1}
    assert set(after["environment"]) == set(range(len(environments)))
    result = bench(*command, "--seeds", "1", "--out", "one")  # the published folder itself
    assert "1 run taken from one\n1 run, finished before" in result.output
    pd.testing.assert_frame_equal(read_results(tmp_path / "one"), before)


@pytest.mark.usefixtures("without_report")
def test_runs_that_are_not_read_by_what_is_wanted_are_not_taken(bench, ratings, tmp_path):
    command = small(ratings, "--methods", "classification", "--seeds", "1")
    assert bench(*command, "--decode", "mode", "--out", "one").exit_code == 0
    shutil.rmtree(tmp_path / "one" / "cells")
    result = bench(*command, "--decode", "mode,median", "--out", "two", "--merge", "one")
    left = "1 run of one/results.csv left out: not read by all of mode, median\n"
    assert f"{left}0 runs taken from one\n1 run\n" in result.output
    assert read_results(tmp_path / "two")["mae"].notna().all()
    (tmp_path / "one" / "environment.json").unlink()
    result = bench(*command, "--out", "three", "--merge", "one")
    assert "merge must be results with environment.json, got one: it says" in result.output


@pytest.mark.slow
def test_a_grid_may_be_run_one_data_set_after_another(bench, ratings, tmp_path):
    """Also where they are read by different decodings."""
    grid = (
        'methods = ["classification", "arc"]\n'
        "settings = { head = { dim = 4 }, training = { epochs = 1 } }\n"
    )
    for name, metric in {"one": "accuracy", "two": "mae"}.items():
        shutil.copy(ratings, f"{name}.csv")
        grid += (
            f'[[data]]\nname = "{name}"\nsource = "table"\nroot = "{name}.csv"\n'
            'options = { label = "grade" }\n'
            f'settings = {{ training = {{ metric = "{metric}" }} }}\n'
        )
    Path("grid.toml").write_text(grid)
    command = ("--grid", "grid.toml", "--out", "out", "--jobs", "1")
    for name in ("one", "two"):
        result = bench(*command, "--only", name)
        assert result.exit_code == 0, result.output
        assert "2 runs\n" in result.output
        table = (tmp_path / "out" / "tables" / "mae-median.md").read_text()
        assert [each in table for each in ("one", "two")] == [name == "one", name == "two"]
    assert set(read_results(tmp_path / "out")["data"]) == {"one", "two"}
    about, _ = read_environments(tmp_path / "out")
    assert about["runs"] == 4
    shutil.rmtree(tmp_path / "out" / "cells")
    result = bench(*command, "--reference", "arc")
    assert "4 runs taken from out\n4 runs, 4 of them finished before" in result.output
    assert (tmp_path / "out" / "tables" / "mae-median-against-arc.md").exists()
    assert not (tmp_path / "out" / "tables" / "mae-median-against-classification.md").exists()


@pytest.mark.usefixtures("without_report")
def test_what_ended_before_a_stop_can_be_carried_elsewhere(bench, ratings, tmp_path, monkeypatch):
    command = small(ratings, "--methods", "classification", "--seeds", "3", "--jobs", "1")
    run_cell = runner.run_cell

    def stopped_at_the_second(cell, **others):
        if cell.labels["seed"] == "1":
            raise KeyboardInterrupt
        return run_cell(cell, **others)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "run_cell", stopped_at_the_second)
        result = bench(*command, "--out", "one")
    assert result.exit_code == 130, result.output
    assert list(read_results(tmp_path / "one")["seed"]) == ["0"]
    shutil.rmtree(tmp_path / "one" / "cells")
    result = bench(*command, "--out", "two", "--merge", "one")
    assert "1 run taken from one\n3 runs, 1 of them finished before" in result.output


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_a_damaged_outcome_is_run_again(bench, ratings, tmp_path):
    command = small(ratings, "--methods", "classification", "--out", "out")
    assert bench(*command).exit_code == 0
    (file,) = tmp_path.glob("out/cells/*/outcome.json")
    before = json.loads(file.read_text())["numbers"]
    file.write_text('{"wanted": "x"')
    result = bench(*command)
    assert result.exit_code == 0, result.output
    assert "outcome.json is damaged, so it is run again\n1 run\n" in result.output
    assert json.loads(file.read_text())["numbers"] == before


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_swapped_and_deleted_images_are_noticed(bench, tmp_path):
    rng = np.random.default_rng(0)
    for number, name in enumerate(("low", "high")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index in range(12):
            pixels = rng.integers(100 * number, 100 * number + 90, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{index}.png")
    options = ("--classes", "low,high", "--backbone", "convnet", "--methods", "classification")
    options += ("--set", "training.epochs=1", "--set", "data.workers=0", "--jobs", 1)
    command = ("folder", "--root", "photos", *options, "--recipe", "paper", "--out", "out")
    assert bench(*command).exit_code == 0
    assert "1 run, finished before" in bench(*command).output
    (tmp_path / "photos/low").rename(tmp_path / "photos/x")
    (tmp_path / "photos/high").rename(tmp_path / "photos/low")
    (tmp_path / "photos/x").rename(tmp_path / "photos/high")
    for index in range(4):
        (tmp_path / "photos" / "high" / f"{index}.png").unlink()
    result = bench(*command)
    assert result.exit_code == 0, result.output
    photos = tmp_path / "photos"
    why = f"1 run is made again: the data in {photos} have changed since\n1 run\n"
    assert why in result.output
    assert len(list(tmp_path.glob("out/cells/*/outcome.json"))) == 2


def shown(table, width):
    said = io.StringIO()
    show_table(table, Console(file=said, width=width))
    return said.getvalue()


@pytest.fixture
def table():
    entries = (
        tuple(Entry(mean=1.234, n=3, is_best=True) for _ in range(9)),
        tuple(Entry(mean=5.678, n=2, failed=1) for _ in range(9)),
    )
    columns = tuple(Column(f"C{number}") for number in range(9))
    return Table("A caption", ("line [norm=3]", "arc"), columns, entries)


@pytest.mark.parametrize("width", [30, 60, 61, 62, 63, 80, 200])
def test_a_column_is_shown_whole_or_not_at_all(table, width):
    lines = [line for line in shown(table, width).splitlines() if line.strip()]
    (head,) = [line.split() for line in lines if line.split()[0] == "Method"]
    (line,) = [line for line in lines if "line [norm=3]" in line]
    (arc,) = [line for line in lines if line.split()[0] == "arc"]
    count = len(head) - 1
    assert head == ["Method", *(f"C{number}" for number in range(count))]
    assert line.split() == ["line", "[norm=3]", *["1.234"] * count]
    assert arc.split() == ["arc", *["5.678", "(2", "of", "3)"] * count]
    assert (count == 9) == (width == 200)
