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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from pathlib import Path
from types import ModuleType

from layline.utils.errors import UserError


class PluginError(UserError):
    """A plug-in is missing, cannot be imported, or offers something invalid."""


@dataclass(frozen=True)
class Plugin:
    """The name and version of a plug-in, as runs and model files record them."""

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


LOADED: dict[str, tuple[ModuleType, Plugin]] = {}  # what the user named, by module name


@contextmanager
def refuse_failure(plugin: str) -> Iterator[None]:
    """Turn whatever goes wrong while a plug-in is imported into a :class:`PluginError`."""
    try:
        yield
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise PluginError(f"{plugin} cannot be imported: {why}") from error


def load_plugins(plugins: Iterable[str | Path]) -> None:
    """Import files, folders of packages or modules, so that the registries find their entries."""
    for plugin in [plugins] if isinstance(plugins, str | Path) else plugins:
        module = import_reference(resolve_reference(plugin))
        if module.__name__ not in LOADED:
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
    return str(path)


def import_reference(reference: str) -> ModuleType:
    """Import what :func:`resolve_reference` returned."""
    path = Path(reference) if is_path(reference) else None
    # the folder is added, so that other processes find the module by its name as well
    folder = str(Path.cwd() if path is None else path.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    importlib.invalidate_caches()
    with refuse_failure(f"The plug-in {reference}"):
        module = importlib.import_module(reference if path is None else path.stem)
    file = getattr(module, "__file__", None) or ""
    if path is not None and Path(file).resolve() not in (path, path / "__init__.py"):
        raise PluginError(f"The plug-in {path} has the name of another module, {file}. Rename it.")
    return module


def describe_plugin(module: ModuleType) -> Plugin:
    """Return the distribution and version of a module, or its name and version or digest."""
    top, file = module.__name__.partition(".")[0], getattr(module, "__file__", None)
    distributions = packages_distributions().get(top)
    if distributions:
        return Plugin(distributions[0], version(distributions[0]))
    own = str(getattr(module, "__version__", ""))
    if not own and file is not None:
        own = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
    return Plugin(module.__name__, own)
