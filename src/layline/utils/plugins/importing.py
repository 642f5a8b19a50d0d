"""Importing plug-ins: each once, and a file anew when it has changed."""

import importlib
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Protocol

from layline.utils.plugins.references import (
    PluginError,
    digest_of,
    distribution_of,
    folder_of,
    full_reference,
    is_library,
    is_path,
    is_reference,
    module_name,
    source_files,
    spec_of,
    version_of,
)

# What a plug-in may have: the kind, and the dictionary of it in a file.
KINDS = {"heads": "HEADS", "backbone": "BACKBONES", "sources": "SOURCES"}
_STARTED = time.time()


@dataclass(frozen=True)
class Plugin:
    """Code from outside, as it was imported.

    Attributes:
        reference: The full path of a file or package, or the name of a module.
        module: What was imported.
        digest: Of the bytes of its modules, when it was imported.
        modules: Their names.
        distribution: The installed package that it is of, with its version, if there is one.
    """

    reference: str
    module: ModuleType = field(compare=False)
    digest: str
    modules: tuple[str, ...]
    distribution: str = ""

    @property
    def label(self) -> str:
        """What a person would call it: the package and its version, or the file."""
        return self.distribution or self.reference

    @property
    def hint(self) -> str:
        """What somebody else would have to name or to install; no path of this machine."""
        return self.distribution or Path(self.reference).name

    @property
    def version(self) -> str:
        """Name what its code does now, on this machine."""
        return version_of(self.reference, self.distribution)


class Offers(Protocol):
    """A registry, as far as plug-ins need one: it takes what they have, and lets go of it."""

    def offered(self, plugin: Plugin) -> list[str]:
        """Take what a plug-in has of a kind, and name it."""

    def forget(self, plugin: Plugin) -> None:
        """Let go of what a plug-in has."""


# By their kinds; each puts itself here.
_REGISTRIES: dict[str, Offers] = {}
# The plug-ins of this process, by the names of their modules.
_USED: dict[str, Plugin] = {}
# What a user named in full, such as ``module:Name``.
_VOUCHED: set[str] = set()
# References that a user named; what a name such as ``module:Name`` imports offers that name only.
_NAMED: set[str] = set()


def register(kind: str, registry: Offers) -> None:
    """Let a registry be told of plug-ins from now on."""
    _REGISTRIES[kind] = registry


def named_plugins() -> dict[str, Plugin]:
    """Give the plug-ins that a user named, by the names of their modules."""
    return {name: plugin for name, plugin in _USED.items() if plugin.reference in _NAMED}


def is_vouched(place: str) -> bool:
    """Tell whether a user named a place in full, such as ``module:Name``."""
    return place in _VOUCHED


def use(plugins: Iterable[str | Path], replace: bool = False) -> list[Plugin]:
    """Import plug-ins, so that their heads, features and sources are known by name.

    A file that has changed since it was imported is imported anew.

    Args:
        plugins: Files, packages or modules.
        replace: A file may take the place of another of the same name, such as the copy that a run
            keeps of it.
    """
    references = map(full_reference, [plugins] if isinstance(plugins, str) else plugins)
    found = []
    for reference in references:
        is_place = is_reference(reference)
        plugin = import_plugin(module_name(reference) if is_place else reference, replace)
        found.append(plugin)
        if is_place:
            _VOUCHED.add(reference)
            continue
        _NAMED.add(plugin.reference)
        try:
            offers = [registry.offered(plugin) for registry in _REGISTRIES.values()]
        except PluginError:
            _forget(plugin)
            raise
        if len(_REGISTRIES) == len(KINDS) and not any(offers):
            _forget(plugin)
            raise PluginError(
                f"plugin must have a head, features or a source, got none in {plugin.reference}: "
                "define a subclass of OrdinalHead, or HEADS = {'name': …}"
            )
    return found


def refresh(plugin: Plugin) -> None:
    """See that a plug-in is what its files say now: a file is imported anew, a package refused."""
    if plugin.reference in _NAMED:
        use([plugin.reference])
    else:
        import_plugin(plugin.reference, distribution=plugin.distribution)


def import_plugin(reference: str, replace: bool = False, distribution: str = "") -> Plugin:
    """Import a plug-in without asking what it has.

    Args:
        reference: As :func:`full_reference` gives it.
        replace: A file may take the place of another of the same name.
        distribution: The installed package that it is of, if that is known.
    """
    name = module_name(reference)
    digest = digest_of(reference)
    known = _USED.get(name)
    if known is not None and known.digest == digest:
        return known
    is_file = is_path(reference) and reference.endswith(".py")
    if not is_file and (known is not None or _may_be_stale(reference)):
        raise PluginError(
            f"plugin must be as it was imported, got other source of {reference}: start Python "
            "again"
        )
    if known is not None:
        if known.reference != reference and not replace:
            raise PluginError(
                f"plugins must have different names, got {known.reference} and {reference}: "
                "rename one of the files"
            )
        _forget(known)
    try:
        module = _import_file(name, Path(reference)) if is_file else _import_module(reference)
    except PluginError:
        raise
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise PluginError(f"plugin must be importable, got {reference}: {why}") from error
    owner = distribution or distribution_of(reference)
    plugin = Plugin(reference, module, digest, tuple(source_files(reference)), owner)
    _USED[name] = plugin
    return plugin


def _may_be_stale(reference: str) -> bool:
    """Tell whether somebody imported a module before its files were changed, as far as we know."""
    files = source_files(reference)
    changed = [name for name, path in files.items() if path.stat().st_mtime > _STARTED]
    return any(name in sys.modules for name in changed)


def _import_file(name: str, path: Path) -> ModuleType:
    """Import a file by its own name: other processes, and what it imports, find it by that."""
    loaded = sys.modules.get(name)
    is_other = loaded is not None and Path(loaded.__file__ or "").resolve() != path
    # one in another folder, such as that which a run has copied, is only out of sight
    if is_other or (loaded is None and spec_of(name) is not None and is_library(name)):
        raise PluginError(
            f"plugin must have a name of its own, got {path}: Python has another module {name}, "
            "rename the file"
        )
    spec = spec_from_file_location(name, path)
    assert spec is not None  # it ends in .py
    module = module_from_spec(spec)
    with _in_path(path.parent):
        sys.modules[name] = module
        try:
            # compiled here: Python takes a file of the same second and size for the same
            exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
    return module


def _import_module(reference: str) -> ModuleType:
    name = module_name(reference)
    if not is_path(reference):
        folder = folder_of(name.partition(".")[0])
        if folder is None or str(folder) in sys.path:
            return importlib.import_module(name)
        with _in_path(folder):
            return importlib.import_module(name)
    path = Path(reference)
    with _in_path(path.parent):
        module = importlib.import_module(name)
    if module.__file__ is None or Path(module.__file__).resolve() != path / "__init__.py":
        del sys.path[sys.path.index(str(path.parent))]
        raise PluginError(
            f"plugin must have a name of its own, got {path}: Python has another package {name}, "
            "rename the folder"
        )
    return module


@contextmanager
def _in_path(folder: Path) -> Iterator[None]:
    """Let modules be found in a folder, after all other places, and leave no bytecode there.

    It stays in the path: processes that are started from this one find the modules too.
    """
    importlib.invalidate_caches()
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    added = str(folder) not in sys.path
    if added:
        sys.path.append(str(folder))
    try:
        yield
    except BaseException:
        if added:
            sys.path.remove(str(folder))
        raise
    finally:
        sys.dont_write_bytecode = before


def _forget(plugin: Plugin) -> None:
    """Take a plug-in out of this process, as far as that is possible."""
    _USED.pop(module_name(plugin.reference), None)
    _NAMED.discard(plugin.reference)
    for registry in _REGISTRIES.values():
        registry.forget(plugin)
    if is_path(plugin.reference):
        for name in plugin.modules:
            sys.modules.pop(name, None)
        folder = str(Path(plugin.reference).parent)
        if folder in sys.path:
            sys.path.remove(folder)
