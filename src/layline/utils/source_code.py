"""What source code does, named by its meaning and not by its text.

Modules are hashed as syntax trees: without comments, formatting and docstrings, and without the
texts of errors, warnings and messages. In doubt something counts: a name or an annotation that is
changed is another version. The package's own modules are known by it, and those of plug-ins.
"""

import ast
import hashlib
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

# Calls, as statements, whose texts are for people.
_SAYING = {"say", "_say", "warn"}
# Of a syntax tree: where things stand, and what follows from the rest.
_NO_MEANING = {"ctx", "type_comment", "kind", "type_ignores"}


def modules_below(
    start: str, file_of: Callable[[str], Path | None], leave_out: Collection[str] = ()
) -> dict[str, Path]:
    """Find the modules that one imports, directly or through others, anywhere in them.

    Args:
        start: The name of the first module.
        file_of: Gives the file of a module that belongs to the code, None for any other name.
        leave_out: Names of modules that do not count, and what only they import.

    Returns:
        The file of each module, by its name.
    """
    found: dict[str, Path] = {}
    seen, todo = set(leave_out), [start]
    while todo:
        name = todo.pop()
        path = None if name in seen else file_of(name)
        seen.add(name)
        if path is not None:
            found[name] = path
            todo += _imports(parsed(path), name, path.name == "__init__.py")
            todo.append(name.rpartition(".")[0])  # a package is run before what is in it
    return found


def file_below(folder: Path, name: str) -> Path | None:
    """Find the file of a module below a folder; a name that is imported from one has none."""
    place = folder.joinpath(*name.split("."))
    for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
        if name and path.is_file():
            return path
    return None


def parsed(path: Path) -> ast.Module:
    """Read the syntax tree of a file; one that did not change is not read again."""
    state = path.stat()
    return _parsed(path, state.st_mtime_ns, state.st_ctime_ns, state.st_size)


@lru_cache(maxsize=512)
def _parsed(path: Path, changed: int, entered: int, size: int) -> ast.Module:
    return ast.parse(path.read_bytes())


def _imports(module: ast.Module, name: str, is_package: bool) -> Iterator[str]:
    """Name what a module imports, anywhere in it; some are no modules."""
    parents = name.split(".") if is_package else name.split(".")[:-1]
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else []
            place = ".".join([*base, *([node.module] if node.module else [])])
            yield from (place, *(f"{place}.{alias.name}".lstrip(".") for alias in node.names))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


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


@lru_cache
def commit_of(file: Path) -> str | None:
    """Name the commit of a file that git keeps; None for an installed one.

    Where something beside it in its folder has changed since, ``, changed`` follows.

    Args:
        file: Of a package, beside its other modules.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(file.parent), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", file.name)  # an environment may lie in a checkout
        changed = ", changed" if git("status", "--porcelain", "--", ".") else ""
        return git("rev-parse", "HEAD") + changed
    except (OSError, subprocess.SubprocessError):
        return None
