"""Look up heads, backbones and data sources by name, built-in ones and those of plug-ins.

Each kind has one :class:`Registry`. Plug-ins add entries in two ways:

- The user names a Python file, the folder of a package, or a module, see :func:`load_plugins`. It
  offers the entries of its dictionaries ``HEADS``, ``BACKBONES`` and ``SOURCES``. Without them it
  offers its public classes by their own names.
- An installed package has an entry point in the group ``layline.heads``, ``layline.backbones`` or
  ``layline.sources``.
"""

import contextlib
import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points, packages_distributions, version
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from layline.utils.validation import UserError, check_known

T = TypeVar("T")
_DICTIONARIES = ("HEADS", "BACKBONES", "SOURCES")
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class PluginError(UserError):
    """A plug-in is missing, cannot be imported, or offers something invalid."""


@dataclass(frozen=True)
class Plugin:
    """The name and version of a plug-in, as runs and model files record them."""

    name: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


LOADED: dict[str, tuple[ModuleType, Plugin]] = {}  # the plug-ins that the user named, by module


class Registry(Mapping[str, T]):
    """The entries of one kind by name.

    Installed plug-ins are imported when one of their entries is looked up. A built-in name is never
    replaced. ``adopt`` makes an entry from an object of a plug-in, or raises a ``TypeError`` that
    says what the object must be.
    """

    def __init__(
        self,
        kind: str,  # heads, backbones or sources
        argument: str,  # what users call a name of this kind, for error messages
        builtin: Mapping[str, T],
        adopt: Callable[[str, Any], T],
        build: str = "build",  # the attribute of an entry that is called to make the object
        reserved: tuple[str, ...] = (),  # parameters of that callable that are not options
    ) -> None:
        self.kind, self.builtin = kind, builtin
        self._argument, self._adopt, self._build = argument, adopt, build
        self._reserved = reserved

    def __getitem__(self, name: str) -> T:
        if name in self.builtin:
            return self.builtin[name]
        return self._import_entry(name, *self._offers()[name])

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self._offers()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def names(self) -> tuple[str, ...]:
        """List all names, built-in ones first."""
        return tuple(dict.fromkeys((*self.builtin, *self._offers())))

    def find(self, name: str) -> T:
        """Look up a name; an unknown one is an error that suggests similar names."""
        if not isinstance(name, str) or name not in self.builtin:  # entry points are slow to list
            check_known(self._argument, name, self.names())
        return self[name]

    def options_of(self, name: str) -> tuple[str, ...]:
        """List the options that an entry takes by name."""
        return self.spec_options(self.find(name))[0]

    def spec_options(self, spec: T) -> tuple[tuple[str, ...], bool]:
        """List the options of an entry, and tell whether it accepts any others."""
        parameters = inspect.signature(getattr(spec, self._build)).parameters.values()
        named = [each for each in parameters if each.kind not in _VARIABLE]
        options = tuple(each.name for each in named if each.name not in self._reserved)
        return options, any(each.kind is each.VAR_KEYWORD for each in parameters)

    def check_options(self, name: str, spec: T, options: Mapping[str, Any]) -> None:
        """Raise an error for an option that an entry does not take."""
        known, takes_any = self.spec_options(spec)
        for option in () if takes_any else options:
            if not known:
                raise UserError(f"{name} takes no options, got {option}.")
            check_known(f"option of {name}", option, known)

    def plugin_of(self, name: str) -> Plugin | None:
        """Return the plug-in that an entry comes from; None for built-in and unknown names."""
        offers = {} if name in self.builtin else self._offers()
        return offers[name][0] if name in offers else None

    def require(self, name: str, plugin: str = "") -> None:
        """Check that a name in a file is available, without importing what the file names."""
        if name not in self and plugin:
            raise PluginError(
                f"{self._argument} {name!r} comes from the plug-in {plugin}, which is not loaded. "
                "Install it, or pass its file or module as a plug-in if you trust it."
            )

    def describe(self) -> Iterator[tuple[str, T | PluginError, str]]:
        """Yield each name with its entry (or what is wrong with it) and its plug-in, if any."""
        for name, spec in self.builtin.items():
            yield name, spec, ""
        for name, (plugin, offer) in self._offers().items():
            try:
                yield name, self._import_entry(name, plugin, offer), str(plugin)
            except PluginError as error:
                yield name, error, str(plugin)

    def _offers(self) -> dict[str, tuple[Plugin, Any]]:
        """List what plug-ins offer; an entry point is not imported yet."""
        offers: dict[str, tuple[Plugin, Any]] = {}
        for module, plugin in LOADED.values():
            for name, found in self._list_module(module).items():
                self._import_entry(name, plugin, found)  # a mistake in a named file is an error
                if name in offers:
                    both = f"{offers[name][0]} and {plugin}"
                    raise PluginError(f"{both} both offer {name!r}. Rename one.")
                offers[name] = plugin, found
        for point in _entry_points(f"layline.{self.kind}"):
            package = point.dist
            plugin = Plugin(package.name, package.version) if package else Plugin(point.module)
            offers.setdefault(point.name, (plugin, point))
        return offers

    def _list_module(self, module: ModuleType) -> Mapping[str, Any]:
        """List what a module offers of this kind: its dictionary, or its public classes."""
        found = vars(module)
        if any(name in found for name in _DICTIONARIES):
            own: dict[str, Any] = found.get(self.kind.upper(), {})
            return own
        offers = {}
        for name, each in found.items():
            is_own = isinstance(each, type) and each.__module__ == module.__name__
            if is_own and not name.startswith("_"):
                with contextlib.suppress(TypeError):
                    self._adopt(name, each)
                    offers[name] = each
        return offers

    def _import_entry(self, name: str, plugin: Plugin, offer: Any) -> T:
        """Make an entry from what a plug-in offers under a name."""
        if name in self.builtin:
            raise PluginError(f"{plugin} offers {name!r}, a built-in name. Choose another.")
        # an entry point, whose class depends on which library found it
        if not callable(offer) and hasattr(offer, "load"):
            with _report_failure(f"{name} of {plugin}"):
                offer = offer.load()
        try:
            return self._adopt(name, offer)
        except TypeError as error:
            got = offer.__name__ if isinstance(offer, type) else type(offer).__name__
            raise PluginError(f"{name} of {plugin} must be {error}, got {got}.") from None


@cache
def _entry_points(group: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def first_line(found: Any) -> str:
    """Return the first line of an object's docstring, as a one-line summary."""
    return (found.__doc__ or "").strip().partition("\n")[0].rstrip(".") or "no description"


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
    with _report_failure(f"The plug-in {reference}"):
        module = importlib.import_module(reference if path is None else path.stem)
    file = getattr(module, "__file__", None) or ""
    if path is not None and Path(file).resolve() not in (path, path / "__init__.py"):
        raise PluginError(f"The plug-in {path} has the name of another module, {file}. Rename it.")
    return module


@cache
def _find_distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


def describe_plugin(module: ModuleType) -> Plugin:
    """Return the distribution and version of a module, or its name and version or digest."""
    distributions = _find_distributions().get(module.__name__.partition(".")[0])
    if distributions:
        return Plugin(distributions[0], version(distributions[0]))
    own, file = str(getattr(module, "__version__", "")), getattr(module, "__file__", None)
    if not own and file is not None:
        own = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
    return Plugin(module.__name__, own)


@contextlib.contextmanager
def _report_failure(plugin: str) -> Iterator[None]:
    """Turn whatever goes wrong while a plug-in is imported into a :class:`PluginError`."""
    try:
        yield
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise PluginError(f"{plugin} cannot be imported: {why}") from error
