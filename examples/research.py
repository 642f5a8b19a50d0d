"""Compare methods as a paper would.

A single run on a single split says little: methods of ordinal classification differ by less than
seeds do. This page compares three methods on two tables over two seeds, with ranks and tests,
and finds every number again in a file.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

import pandas as pd
from sklearn.datasets import load_diabetes, load_wine

place = Path(mkdtemp())


def command(line):
    """Run the command `layline` with these words, and show what it prints."""
    said = subprocess.run(
        [sys.executable, "-m", "layline", *shlex.split(line)],
        **{"cwd": place, "check": True, "capture_output": True, "text": True},
        env=os.environ | {"COLUMNS": "100"},
    )
    print(said.stdout)


# ## The data
# Two tables that ship with scikit-learn, their number cut into grades: the progression of
# diabetes, and the alcohol of wines. Your benchmark should have more: [ours has
# 17](../docs/benchmark.md).

diabetes = load_diabetes(as_frame=True).frame
diabetes["grade"] = pd.qcut(diabetes.pop("target"), 5, labels=range(5))
diabetes.to_csv(place / "diabetes.csv", index=False)

wine = load_wine(as_frame=True).data
wine["grade"] = pd.qcut(wine.pop("alcohol"), 4, labels=range(4))
wine.to_csv(place / "wine.csv", index=False)

# ## The grid
# Each combination of data set, method and seed is one run; `--dry-run` only lists them. The same
# in a file, with settings for each data set, is `--grid grid.toml`.

GRID = (
    "bench diabetes.csv wine.csv --label grade --methods arc,coral,classification "
    "--seeds 2 --decode median --set training.epochs=10 --jobs 1 --out results"
)
command(GRID)

# Two data sets and two seeds are too few to tell these methods apart, and ten epochs too few to
# train them: take five seeds or more.
#
# The same command again runs nothing: a run is identified by its configuration, its data and the
# version of Layline. A stopped grid is resumed.

# ## Every number
# `results.csv` has one line for each run, for any further test. `tables/` has five tables as
# Markdown and CSV; `report.html` shows everything on one page.

runs = pd.read_csv(place / "results" / "results.csv")
print(runs.pivot_table("mae", "method", "data").round(3))
print(sorted(path.name for path in (place / "results").iterdir()))

# ## The paper
# Every table and figure of the paper is a grid of this kind, with its own numbers beside ours.
# `layline reproduce all` makes all of them on small stand-ins for the data; [more about
# it](../docs/reproduce.md).

command("reproduce --list")
