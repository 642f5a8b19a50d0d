"""Code from outside: heads, features and sources of data that somebody else wrote.

There are three ways to one. An installed package has an entry point in the group ``layline.heads``,
``layline.features`` or ``layline.sources``. A user names a file, the folder of a package or a
module, as ``--plugin my_head.py``. Or the name of a method is itself a place, such as
``my_package.heads:MyHead``. Nothing is imported before it is asked for.

A file may have dictionaries ``HEADS``, ``FEATURES`` and ``SOURCES``; without any of them its public
classes and entries count, by their own names. A built-in name is never replaced.

What a plug-in does is known by a hash of its modules (:mod:`layline.source_code`): those that it
imports from its own package or, for a file, from its folder.
"""

import hashlib
import importlib
import os
import re
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points, packages_distributions, version
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from layline.arguments import check_known
from layline.source_code import file_below, hash_modules, modules_below, parsed

_T = TypeVar("_T")
_STARTED = time.time()
_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class PluginError(ValueError):
    """A plug-in is not there, cannot be imported, or is not what it should be."""


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


# --- finding code, without running it


def is_reference(name: object) -> bool:
    """Tell whether a name is a place in a module, such as ``my_package.heads:MyHead``."""
    return isinstance(name, str) and _REFERENCE.fullmatch(name) is not None


def full_reference(plugin: str | Path) -> str:
    """Give the reference of a plug-in as it can be written down: a full path, or a module.

    Args:
        plugin: A ``.py`` file, the folder of a package, the name of a module, or of something in
            one, such as ``my_package.heads:MyHead``.
    """
    text = str(plugin)
    path = Path(text).expanduser()
    if is_reference(text) and not is_path(text.partition(":")[0]):
        return text
    if is_path(text):
        path = path.resolve()
        if path.is_dir() and not (path / "__init__.py").is_file():
            raise PluginError(
                f"plugin must be a .py file, a package or a module, got the folder {text}: it has "
                "no __init__.py"
            )
        if not path.exists():
            raise PluginError(f"plugin must be a file, got {text}: it is not there")
        if not _MODULE.fullmatch(path.stem):
            raise PluginError(
                f"plugin must be a file that Python can import, got {text}: rename it, with "
                "letters, digits and _ only"
            )
        return str(path)
    if not _MODULE.fullmatch(text):
        raise PluginError(
            f"plugin must be a .py file, a package or a module, got {text!r}: write my_head.py or "
            "my_package.heads"
        )
    return text


def is_path(text: str) -> bool:
    """Tell a file or folder from the name of a module."""
    return text.endswith(".py") or "/" in text or os.sep in text


def module_name(reference: str) -> str:
    """Give the name that a plug-in is imported by."""
    return Path(reference).stem if is_path(reference) else reference.partition(":")[0]


def source_files(reference: str) -> dict[str, Path]:
    """Find the files of a plug-in and of the modules that it imports, without running them.

    Args:
        reference: As :func:`full_reference` gives it.

    Returns:
        Files by the name of their module; none where there is no source.
    """
    name = module_name(reference)
    if is_path(reference):
        path = Path(reference)
        package = None if path.is_file() else name

        def file_of(module: str) -> Path | None:
            if module == name and path.is_file():
                return path
            own = package in (None, module.partition(".")[0])
            return file_below(path.parent, module) if own else None
    else:
        top = name.partition(".")[0]
        root = folder_of(top)

        def file_of(module: str) -> Path | None:
            own = root is not None and module.partition(".")[0] == top
            return file_below(root, module) if own and root is not None else None

    try:
        return modules_below(name, file_of)
    except (SyntaxError, ValueError) as error:
        raise PluginError(f"plugin must be Python, got {reference}: {error}") from None


def folder_of(package: str) -> Path | None:
    """Give the folder in which a package or module lies; nothing of it is run."""
    spec = _spec_of(package)
    if spec is None and file_below(Path.cwd(), package) is not None:
        return Path.cwd()
    if spec is None or (spec.origin is None and not spec.submodule_search_locations):
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).parent
    return Path(str(spec.origin)).parent


def is_library(reference: str) -> bool:
    """Tell what a package manager wrote, which its version stands for, from code of one's own."""
    if is_path(reference):
        return False
    top = reference.partition(".")[0]
    folder = folder_of(top)
    places = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")}
    installed = {Path(place).resolve() for place in places}
    return top in sys.stdlib_module_names or (folder is not None and folder.resolve() in installed)


def _spec_of(package: str) -> ModuleSpec | None:
    """Find a module that is not in a package, which runs nothing."""
    try:
        return find_spec(package)
    except ValueError:  # a module that somebody put together by hand
        return None


def digest_of(reference: str) -> str:
    """Name the bytes of a plug-in's modules."""
    digest = hashlib.blake2b(digest_size=16)
    for name, path in sorted(source_files(reference).items()):
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def version_of(reference: str, distribution: str = "") -> str:
    """Name what a plug-in does: a hash of the meaning of its modules, and its package's version."""
    files = source_files(reference)
    meant = hash_modules({name: parsed(path) for name, path in files.items()})
    return f"{module_name(reference)}+{meant}" + (distribution and f" of {distribution}")


# --- importing it

# The plug-ins of this process, by the names of their modules.
_USED: dict[str, Plugin] = {}
# What a user named in full, such as ``module:Name``.
_VOUCHED: set[str] = set()
# References that a user named; what a name such as ``module:Name`` imports offers that name only.
_NAMED: set[str] = set()


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
        if len(_REGISTRIES) == len(_ATTRIBUTES) and not any(offers):
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
    if is_other or (loaded is None and _spec_of(name) is not None and is_library(name)):
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


def distribution_of(reference: str) -> str:
    """Name the installed package of a module, with its version; empty for a file."""
    if is_path(reference):
        return ""
    names = _distributions().get(reference.partition(".")[0], [])
    return f"{names[0]} {version(names[0])}" if names else ""


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


@cache
def _entry_points(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Give the entry points of a group by name; one that is listed twice counts once."""
    found: dict[str, dict[tuple[str, str], EntryPoint]] = {}
    for point in entry_points(group=group):
        package = point.dist.name if point.dist is not None else ""
        found.setdefault(point.name, {})[package, point.value] = point
    return {name: tuple(points.values()) for name, points in found.items()}


def is_installed(reference: str) -> bool:
    """Tell whether an installed package offers a module as a plug-in."""
    return any(
        point.module == reference
        for kind in _ATTRIBUTES
        for points in _entry_points(f"layline.{kind}").values()
        for point in points
    )


# --- what there is by name

_REGISTRIES: "dict[str, Registry[Any]]" = {}
_ATTRIBUTES = {"heads": "HEADS", "features": "FEATURES", "sources": "SOURCES"}


@dataclass(frozen=True)
class _Entry(Generic[_T]):
    """An entry from outside, and the plug-in that has it."""

    spec: _T
    plugin: Plugin


class Registry(Mapping[str, _T]):
    """What there is of a kind by name: what is built in, and what comes from outside.

    The names of installed plug-ins are known without importing them; an entry is made when it is
    asked for.

    Args:
        kind: ``heads``, ``features`` or ``sources``.
        builtin: The entries of this package.
        adopt: Makes an entry from what a plug-in has under a name, or raises a ``TypeError`` that
            says what it must be.
        is_one: Tells whether a public object of a plug-in is one, if the plug-in has no lists.
    """

    def __init__(
        self,
        kind: str,
        builtin: dict[str, _T],
        adopt: Callable[[str, Any], _T],
        is_one: Callable[[Any], bool],
    ) -> None:
        self.kind, self.builtin = kind, builtin
        self._adopt, self._is_one = adopt, is_one
        self._outside: dict[str, _Entry[_T]] = {}
        self._taken: set[str] = set()  # the plug-ins whose entries are here, by their modules
        _REGISTRIES[kind] = self

    def __getitem__(self, name: str) -> _T:
        if name in self.builtin:
            return self.builtin[name]
        self._take_used()
        if name not in self._outside and name in self._installed():
            self._outside[name] = self._load(name)
        return self._outside[name].spec

    def __contains__(self, name: object) -> bool:
        if name in self.builtin:
            return True
        self._take_used()
        return name in self._outside or name in self._installed()

    def __iter__(self) -> Iterator[str]:
        self._take_used()
        outside = (name for name in self._outside if not is_reference(name))
        return iter(dict.fromkeys((*self.builtin, *outside, *self._installed())))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def find(self, argument: str, name: str) -> _T:
        """Look a name up, or import the place that it names, such as ``my_package.heads:MyHead``.

        Args:
            argument: What the caller calls the name, for an error.
            name: The name that is wanted.
        """
        if isinstance(name, str) and name.partition(":")[0].endswith(".py"):
            raise PluginError(
                f"{argument} must be a known name, got {name!r}: name the file with --plugin "
                f"{name.partition(':')[0]}, and here what is in it"
            )
        if is_reference(name) and name not in self:
            module, _, place = name.partition(":")
            plugin = import_plugin(full_reference(module))
            found: Any = plugin.module
            for part in place.split("."):
                if not hasattr(found, part):
                    raise PluginError(f"{argument} must be in {module}, got {name}: it is not")
                found = getattr(found, part)
            self._outside[name] = _Entry(self._adopted(name, found, plugin), plugin)
        check_known(argument, name, self)
        return self[name]

    def check_vouched(self, argument: str, name: str, needs: str = "") -> None:
        """Refuse a name that only its writer vouches for, such as that of a model file.

        What is built in, installed with an entry point, or named by the user in this process may be
        imported; nothing else is.

        Args:
            argument: What the caller calls the name.
            name: The name that is wanted.
            needs: The package, file or module that it is said to be of, if that is said.
        """
        if is_reference(name):
            if name in self or name in _VOUCHED or self._is_offered(name):
                self.find(argument, name)
                return
            raise PluginError(
                f"{argument} must be a plug-in that you named, got {name!r}: nothing was imported; "
                f"if you trust it, name it with --plugin {name} or plugins=[{name!r}]"
            )
        if name in self or not needs:
            return  # what is unknown is said where it is looked up
        cure = f"name it with --plugin {needs} or plugins=[{needs!r}]"
        if " " in needs:  # a package and its version
            cure = f"pip install {needs.replace(' ', '==', 1)}"
        raise PluginError(
            f"{argument} must be a plug-in that is installed or named, got {name!r} of {needs}: "
            f"nothing was imported; {cure}"
        )

    def _is_offered(self, name: str) -> bool:
        """Tell whether a place is a class or an entry in a module that the user named.

        Nothing else of the module will do: it has imported much that can be called.
        """
        module, _, place = name.partition(":")
        plugin = _USED.get(module)
        if plugin is None or plugin.reference not in _NAMED:
            return False
        found = vars(plugin.module).get(place)
        return self._is_one(found) and _is_of(found, plugin)

    def plugin_of(self, name: str) -> Plugin | None:
        """Give the plug-in that an entry is of; None for what is built in, or not there."""
        if name in self.builtin:
            return None
        if name in self:
            self[name]  # which imports it
        entry = self._outside.get(name)
        return None if entry is None else entry.plugin

    def outside(self) -> Iterator[tuple[str, _T | PluginError, str]]:
        """List what comes from outside: the name, the entry or what is wrong with it, and whose."""
        for name in self:
            if name not in self.builtin:
                try:
                    spec = self[name]
                    yield name, spec, self._outside[name].plugin.label
                except PluginError as error:
                    yield name, error, " and ".join(map(_package, self._installed()[name]))
        for name in _entry_points(f"layline.{self.kind}"):
            if name in self.builtin:
                owner = " and ".join(map(_package, _entry_points(f"layline.{self.kind}")[name]))
                yield (
                    name,
                    PluginError(f"{name} is built in and cannot be replaced: rename it"),
                    owner,
                )

    def offered(self, plugin: Plugin) -> list[str]:
        """Take what a plug-in has of this kind, and name it."""
        if plugin.module.__name__ not in self._taken:
            self._outside |= self._entries(plugin)
            self._taken.add(plugin.module.__name__)
        return [name for name, entry in self._outside.items() if entry.plugin is plugin]

    def forget(self, plugin: Plugin) -> None:
        """Let go of what a plug-in has."""
        self._taken.discard(plugin.module.__name__)
        for name in [name for name, each in self._outside.items() if each.plugin is plugin]:
            del self._outside[name]

    def _take_used(self) -> None:
        for plugin in list(_USED.values()):
            if plugin.reference in _NAMED:
                self.offered(plugin)

    def _installed(self) -> Mapping[str, tuple[EntryPoint, ...]]:
        points = _entry_points(f"layline.{self.kind}")
        return {name: found for name, found in points.items() if name not in self.builtin}

    def _load(self, name: str) -> _Entry[_T]:
        """Import an installed plug-in."""
        point, *others = self._installed()[name]
        if others:
            raise PluginError(
                f"plug-ins must have different names, got {name} in {_package(point)} and in "
                f"{_package(others[0])}: uninstall one of them"
            )
        plugin = import_plugin(full_reference(point.module), distribution=_package(point))
        try:
            found = point.load()
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise PluginError(
                f"plugin must be importable, got {name} of {_package(point)}: {why}"
            ) from error
        return _Entry(self._adopted(name, found, plugin), plugin)

    def _entries(self, plugin: Plugin) -> dict[str, _Entry[_T]]:
        """Make the entries of a plug-in, and refuse those whose names are taken."""
        module = plugin.module
        lists = {
            kind: value
            for kind, attribute in _ATTRIBUTES.items()
            if isinstance(value := getattr(module, attribute, None), Mapping)
            and not isinstance(value, Registry)  # ours, which it has imported
        }
        own: Mapping[str, Any] = lists.get(self.kind, {})
        if not lists:
            own = {
                name: value
                for name, value in vars(module).items()
                if not name.startswith("_") and self._is_one(value) and _is_of(value, plugin)
            }
        found = {}
        for name, value in own.items():
            if not isinstance(name, str) or not name or is_reference(name):
                raise PluginError(
                    f"names of plug-ins must be texts without a colon, got {name!r} in "
                    f"{plugin.reference}"
                )
            if name in self.builtin:
                raise PluginError(
                    f"plug-ins must have names of their own, got {name} in {plugin.reference}: it "
                    "is built in, choose another"
                )
            owner = self._outside[name].plugin if name in self._outside else None
            label = None if owner in (None, plugin) else str(owner and owner.label)
            for point in self._installed().get(name, ()):
                if point.module not in plugin.modules:
                    label = _package(point)
            if label is not None:
                raise PluginError(
                    f"plug-ins must have different names, got {name} in {label} and in "
                    f"{plugin.reference}: rename one"
                )
            found[name] = _Entry(self._adopted(name, value, plugin), plugin)
        return found

    def _adopted(self, name: str, found: Any, plugin: Plugin) -> _T:
        try:
            return self._adopt(name, found)
        except TypeError as error:
            raise PluginError(
                f"{name} of {plugin.reference} must be {error}, got {_kind(found)}"
            ) from None


def _package(point: EntryPoint) -> str:
    return point.value if point.dist is None else f"{point.dist.name} {point.dist.version}"


def _is_of(value: Any, plugin: Plugin) -> bool:
    """Tell whether a class was defined in a plug-in; an entry is of whoever has it."""
    return not isinstance(value, type) or value.__module__ in plugin.modules


def _kind(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def summary_of(found: Any) -> str:
    """Give the first line of an object's docstring, for a list."""
    own = found.__doc__ if isinstance(found, type) or callable(found) else None
    return (own or "").strip().partition("\n")[0].rstrip(".") or "no description"
