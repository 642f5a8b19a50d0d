"""The code that the numbers of a run depend on, named by its meaning and not by its text.

Hashed are the modules that :mod:`layline.training.run` imports, directly or through others, see
:mod:`layline.utils.source_code`. Modules that only show, check or write down are left out, see
``NO_NUMBERS``.
"""

import ast
from functools import cache
from pathlib import Path

import layline
from layline.utils.source_code import file_below, hash_modules, modules_below, parsed

_START = "layline.training.run"
# Modules that a run imports and that change none of its numbers.
NO_NUMBERS = {
    "layline": "the public names, and the version, which is named beside the hash",
    "layline.utils.validation": "refusals, and what a decoding is called",
    "layline.evaluation.diagnostics": "looks at numbers that are there",
    "layline.evaluation.alarm_sentences": "sentences about numbers that are there",
    "layline.evaluation.inputs": "refusals",
    "layline.evaluation.rates": "shares of predictions that are there",
    "layline.evaluation.resampling": "intervals of numbers that are there",
    "layline.evaluation.selective_prediction": "what a second look at predictions is worth",
    "layline.utils.files": "writes files as a whole",
    "layline.utils.optional": "refusals",
    "layline.utils.plugins": "imports code from outside",
    "layline.utils.registry": "finds entries by their names; what they are counts",
    "layline.evaluation.prediction_file": "writes predictions.csv",
    "layline.utils.source_code": "hashes code",
    "layline.training.display": "shows how it goes",
    "layline.training.interruption": "notices signals; what is stopped goes on to the same numbers",
    "layline.training.record": "layouts and mistakes, for the report",
}


@cache
def code_version() -> str:
    """Name the code: the version of the package, and a hash of what the modules of a run mean."""
    return f"{layline.__version__}+{hash_modules(run_modules(Path(layline.__file__).parent))}"


def run_modules(root: Path) -> dict[str, ast.Module]:
    """Read the modules of the package that a run imports, and that can change its numbers.

    Args:
        root: The folder of the package.
    """

    def file_of(name: str) -> Path | None:
        package, _, below = name.partition(".")
        if package != "layline":
            return None
        own = root / "__init__.py"
        return file_below(root, below) if below else own

    return {name: parsed(path) for name, path in modules_below(_START, file_of, NO_NUMBERS).items()}
