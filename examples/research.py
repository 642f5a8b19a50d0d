"""Compare methods as in a paper.

One run on one split is not enough: methods of ordinal classification differ less than seeds do.
This page compares three methods on two tables with two seeds, by ranks and statistical tests.
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
    """Run a `layline` command and print its output."""
    result = subprocess.run(
        [sys.executable, "-m", "layline", *shlex.split(line)],
        **{"cwd": place, "check": True, "capture_output": True, "text": True},
        env=os.environ | {"COLUMNS": "100"},
    )
    print(result.stdout)


# ## The data
# Two tables of scikit-learn, with a number divided into grades: the progression of diabetes, and
# the alcohol of wines. Use more data sets for a benchmark: [ours has 17](../docs/benchmark.md).

diabetes = load_diabetes(as_frame=True).frame
diabetes["grade"] = pd.qcut(diabetes.pop("target"), 5, labels=range(5))
diabetes.to_csv(place / "diabetes.csv", index=False)

wine = load_wine(as_frame=True).data
wine["grade"] = pd.qcut(wine.pop("alcohol"), 4, labels=range(4))
wine.to_csv(place / "wine.csv", index=False)

# ## The grid
# Each combination of data set, method and seed is one run; `--dry-run` only lists them. A grid can
# also be a file with settings for each data set: `--grid grid.toml`.

GRID = (
    "bench diabetes.csv wine.csv --label grade --methods committee,coral,classification "
    "--seeds 2 --decode median --set training.epochs=10 --jobs 1 --out results"
)
command(GRID)

# Two data sets and two seeds are too few to distinguish these methods, and ten epochs are too few
# to train them: use at least five seeds.
#
# The same command again runs nothing: a run is identified by its configuration, its data and the
# version of Layline. A stopped grid is resumed.

# ## Results
# `results.csv` has one line for each run. `tables/` has five tables as Markdown and CSV;
# `report.html` shows everything on one page.

runs = pd.read_csv(place / "results" / "results.csv")
print(runs.pivot_table("mae", "method", "data").round(3))
print(sorted(path.name for path in (place / "results").iterdir()))

# ## The paper
# Every table and figure of the paper is such a grid. `layline reproduce all` makes all of them on
# small substitutes for the data and shows the published numbers next to them; see
# [the paper](../docs/reproduce.md).

command("reproduce --list")
