"""Import heads, backbones and data sources that are written outside this package.

A plug-in is a Python file, the folder of a package, or a module that Python can import. It offers
what its dictionaries ``HEADS``, ``BACKBONES`` and ``SOURCES`` name. Without them it offers its
public classes by their own names. Installed packages use entry points instead, see
:mod:`layline.utils.registry`.
"""

import hashlib
import importlib
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from layline.utils.errors import UserError


class PluginError(UserError):
    """A plug-in is missing, cannot be imported, or offers something invalid."""


@dataclass(frozen=True)
class Plugin:
    """The name and version of a plug-in, as runs and model files record them.

    A file without ``__version__`` is identified by a short hash of its content.
    """

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


LOADED: dict[str, tuple[ModuleType, Plugin]] = {}
"""The plug-ins that the user named, by module name."""
_FILES: dict[str, tuple[Path, int]] = {}  # path and modification time of imported files


def load_plugins(plugins: Iterable[str | Path]) -> None:
    """Import plug-ins, so that the registries find what they offer.

    Args:
        plugins: Python files, folders of packages, or names of modules. A file that changed since
            it was imported is imported again.
    """
    for plugin in [plugins] if isinstance(plugins, str | Path) else plugins:
        module = import_reference(resolve_reference(plugin))
        LOADED[module.__name__] = module, describe_plugin(module)


def is_path(reference: str) -> bool:
    """Tell a file or folder from the name of a module."""
    return reference.endswith(".py") or "/" in reference or os.sep in reference


def resolve_reference(plugin: str | Path) -> str:
    """Return the absolute path of a plug-in's file or folder, or the name of its module."""
    text = str(plugin)
    if not is_path(text):
        return text
    path = Path(text).expanduser().resolve()
    if not (path / "__init__.py" if path.is_dir() else path).is_file():
        raise PluginError(f"The plug-in {text} does not exist, or is a folder without __init__.py.")
    if not path.stem.isidentifier():
        raise PluginError(
            f"The plug-in {text} cannot be imported by that name. Rename it, using only letters, "
            "digits and underscores."
        )
    return str(path)


def import_reference(reference: str) -> ModuleType:
    """Import what :func:`resolve_reference` returned."""
    importlib.invalidate_caches()
    try:
        if is_path(reference):
            return _import_path(Path(reference))
        _add_to_path(Path.cwd())
        return importlib.import_module(reference)
    except PluginError:
        raise
    except (Exception, SystemExit) as error:  # a plug-in may fail in any way
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise PluginError(f"The plug-in {reference} cannot be imported: {why}") from error


def _import_path(path: Path) -> ModuleType:
    """Import a file or package by its own name, which other processes also find it by."""
    name, file = path.stem, path / "__init__.py" if path.is_dir() else path
    state = (file, file.stat().st_mtime_ns)
    if _FILES.get(name) == state and name in sys.modules:
        return sys.modules[name]
    known = find_spec(name)
    if known is not None and known.origin != str(file):
        raise PluginError(
            f"The plug-in {path} has the name of another module, {known.origin}. Rename the file."
        )
    _add_to_path(path.parent)  # the plug-in may import its neighbors
    folder = [str(path)] if path.is_dir() else None
    spec = spec_from_file_location(name, file, submodule_search_locations=folder)
    assert spec is not None  # it ends in .py
    module = sys.modules[name] = module_from_spec(spec)
    try:
        # compiled here: Python's bytecode cache misses a change within one second
        exec(compile(file.read_bytes(), str(file), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    _FILES[name] = state
    return module


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def describe_plugin(module: ModuleType) -> Plugin:
    """Return the distribution and version of a module, or its own name and version."""
    top, file = module.__name__.partition(".")[0], getattr(module, "__file__", None)
    distributions = [] if top in _FILES else packages_distributions().get(top, [])
    if distributions:
        return Plugin(distributions[0], version(distributions[0]))
    own = str(getattr(module, "__version__", ""))
    if not own and file is not None:
        own = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
    return Plugin(module.__name__, own)
