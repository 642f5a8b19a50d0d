"""The code that the numbers of a run depend on, named by its meaning and not by its text.

Hashed are the modules that :mod:`layline.training.run` imports, directly or through others, as
syntax trees: without comments, formatting and docstrings, and without the texts of errors, warnings
and messages. Modules that only show, check or write down are left out, see ``NO_NUMBERS``. In doubt
something counts: a name or an annotation that is changed is another version.
"""

import ast
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import layline

_START = "layline.training.run"
# Modules that a run imports and that change none of its numbers.
NO_NUMBERS = {
    "layline": "the public names, and the version, which is named beside the hash",
    "layline.arguments": "refusals, and what a decoding is called",
    "layline.diagnostics": "sentences about numbers that are there",
    "layline.files": "writes files as a whole",
    "layline.optional": "refusals",
    "layline.prediction_file": "writes predictions.csv",
    "layline.training.display": "shows how it goes",
    "layline.training.interruption": "notices signals; what is stopped goes on to the same numbers",
    "layline.training.record": "layouts and mistakes, for the report",
}
# Calls, as statements, whose texts are for people.
_SAYING = {"say", "_say", "warn"}
# Of a syntax tree: where things stand, and what follows from the rest.
_NO_MEANING = {"ctx", "type_comment", "kind", "type_ignores"}


@cache
def code_version() -> str:
    """Name the code: the version of the package, and a hash of what the modules of a run mean."""
    return f"{layline.__version__}+{hash_modules(run_modules(Path(layline.__file__).parent))}"


def run_modules(root: Path) -> dict[str, ast.Module]:
    """Read the modules of the package that a run imports, and that can change its numbers.

    Args:
        root: The folder of the package.
    """
    found: dict[str, ast.Module] = {}
    seen, todo = set(NO_NUMBERS), [_START]
    while todo:
        name = todo.pop()
        path = None if name in seen else _file_of(root, name)
        seen.add(name)
        if path is not None:
            found[name] = ast.parse(path.read_bytes())
            todo += _imports(found[name])
            todo.append(name.rpartition(".")[0])  # a package is run before what is in it
    return found


def _file_of(root: Path, name: str) -> Path | None:
    """Find the file of a module; a name that is imported from one has none."""
    place = root.joinpath(*name.split(".")[1:])
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file():
            return path
    return None


def _imports(module: ast.Module) -> Iterator[str]:
    """Name what a module imports from the package, anywhere in it; some are no modules."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "layline")


def hash_modules(modules: Mapping[str, ast.Module]) -> str:
    """Hash what modules mean, each with its name."""
    digest = hashlib.blake2b(digest_size=4)
    for name, module in sorted(modules.items()):
        digest.update(f"{name}\0{meaning(module)}\0".encode())
    return digest.hexdigest()


def meaning(module: ast.Module) -> str:
    """Write a module down by what it does: the same text for sources that do the same.

    It does not depend on the version of Python, as ``ast.dump`` does, as long as the syntax trees
    are the same: what is empty is left out.
    """
    parts: list[str] = []
    _write(module, parts)
    return " ".join(parts)


def _write(value: Any, parts: list[str], texts: bool = True) -> None:
    """Add a part of a syntax tree to the parts of a text, with or without the texts in it."""
    if isinstance(value, list):
        for each in value:
            if not _is_docstring(each):
                _write(each, parts, texts)
        parts.append("]")
        return
    if not isinstance(value, ast.AST):
        parts.append(repr(value))
        return
    if not texts and (
        isinstance(value, ast.JoinedStr)
        or (isinstance(value, ast.Constant) and isinstance(value.value, str))
    ):
        return
    if _is_for_people(value):
        texts = False
    parts.append(type(value).__name__)
    for name in value._fields:
        each = getattr(value, name, None)
        is_message = name == "msg" and isinstance(value, ast.Assert)
        if name not in _NO_MEANING and each is not None and each != [] and not is_message:
            parts.append(name)
            _write(each, parts, texts)
    parts.append(")")


def _is_docstring(value: Any) -> bool:
    """Tell whether a statement is a text, or an ellipsis, that does nothing."""
    return isinstance(value, ast.Expr) and isinstance(value.value, ast.Constant)


def _is_for_people(node: ast.AST) -> bool:
    """Tell whether the texts in a statement are for people: an error, a warning or a message."""
    if isinstance(node, ast.Raise):
        return True
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    function = node.value.func
    name = getattr(function, "attr", None) or getattr(function, "id", None)
    return name in _SAYING
