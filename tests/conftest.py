"""What every test shares: one thread each (they run side by side), and a seed."""

import os
import runpy
import signal
from pathlib import Path

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # or scikit-learn skips one of its checks
os.environ.setdefault("OMP_NUM_THREADS", "1")  # also in the processes that tests start

import hypothesis
import jaxtyping
import pytest
import torch

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell starts what is in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
hypothesis.settings.register_profile("layline", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("layline")


@pytest.fixture(autouse=True)
def seed():
    torch.default_generator.manual_seed(0)  # torch's own also notes the stack for every accelerator


@pytest.fixture(autouse=True)
def shapes(request):
    """Check shapes at every call where the mathematics is tested; training takes twice as long."""
    checked = request.path.parent.name in ("geometry", "heads", "contracts")
    jaxtyping.config.update("jaxtyping_disable", not checked)


@pytest.fixture(autouse=True, scope="session")
def own_caches(tmp_path_factory):
    """Keep what is known of the tests' files out of the user's own caches."""
    before = os.environ.get("LAYLINE_CACHE")
    os.environ["LAYLINE_CACHE"] = str(tmp_path_factory.mktemp("caches"))
    yield
    if before is None:
        del os.environ["LAYLINE_CACHE"]
    else:
        os.environ["LAYLINE_CACHE"] = before


@pytest.fixture(scope="session")
def write_run():
    """Write the folder of a run that was never trained, see ``synthetic_runs.py``."""
    return runpy.run_path(str(Path(__file__).with_name("synthetic_runs.py")))["write_run"]


@pytest.fixture
def gradients():
    """Gradients of a scalar with respect to several tensors, zero where one is not used."""

    def of(scalar, *tensors):
        return torch.autograd.grad(scalar, tensors, allow_unused=True, materialize_grads=True)

    return of


@pytest.fixture(scope="session")
def ratings(tmp_path_factory) -> Path:
    """A table with three grades that follow from its two columns."""
    import numpy as np
    import pandas as pd

    path = tmp_path_factory.mktemp("data") / "ratings.csv"
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2))
    rank = np.digitize(x.sum(axis=1) + 0.3 * rng.normal(size=90), [-0.7, 0.7])
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "grade": rank}).to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def long_frame():
    """Results of made-up runs: one row per run and decoding; failed ones have no numbers."""

    def made(data=("lev", "era", "swd"), methods=("line", "arc", "sord"), seeds=4, failed=()):
        import numpy as np
        import pandas as pd

        generator = np.random.default_rng(7)
        metrics = ["accuracy", "mae", "macro_mae", "qwk", "rps", "within_one", "ece"]
        rows = []
        for place in ((d, m, str(s)) for d in data for m in methods for s in range(seeds)):
            numbers = dict(zip(metrics, generator.random(len(metrics)), strict=True))
            numbers |= {"unimodality_rate": generator.random(), "criterion": 0.5, "epoch": 3.0}
            error = "FloatingPointError: the loss is nan" if place in failed else ""
            for decode, shift in (("mode", 0.0), ("median", 0.25)):
                shown = numbers | {"mae": numbers["mae"] + shift}
                if error:
                    shown = dict.fromkeys(numbers, np.nan)
                labels = dict(zip(("data", "method", "seed"), place, strict=True))
                labels |= {"labels": "all", "stress": "none"}
                rows.append({**labels, "decode": decode, **shown, "error": error})
        return pd.DataFrame(rows)

    return made


@pytest.fixture(scope="session")
def write_grid():
    """Write the folder of a grid whose runs were made up, and give what it asks for."""

    def write(folder, frame):
        import json

        from layline.bench.grid import Grid

        labels = {"recipe": "paper", "backbone": "mlp", "setting": "", "version": "1"}
        frame = frame.assign(**labels, seconds=1.0, samples=10)
        grid = Grid.model_validate(
            {
                "data": [{"name": name, "source": "table"} for name in frame["data"].unique()],
                "methods": list(frame["method"].unique()),
                "decodings": list(frame["decode"].unique()),
                "reference": str(frame["method"].iloc[0]),
            }
        )
        frame.to_csv(folder / "results.csv", index=False)
        (folder / "grid.toml").write_text(grid.to_toml())
        about = {"command": ["layline", "bench"], "layline": ["1"], "runs": len(frame)}
        (folder / "environment.json").write_text(json.dumps(about))
        return grid

    return write
