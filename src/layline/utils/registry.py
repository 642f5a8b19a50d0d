"""Look up heads, backbones and data sources by name.

Each kind has one :class:`Registry`. It contains the built-in entries, those of the plug-ins that
the user named, and those of installed packages with an entry point in the group ``layline.heads``,
``layline.backbones`` or ``layline.sources``.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, TypeVar

from layline.utils.errors import UserError
from layline.utils.plugins import LOADED, Plugin, PluginError, refuse_failure
from layline.utils.validation import check_known

T = TypeVar("T")
_LISTS = ("HEADS", "BACKBONES", "SOURCES")
_ANY = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


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
        return self.builtin[name] if name in self.builtin else self._from_plugin(name)[0]

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def names(self) -> tuple[str, ...]:
        """List all names, built-in ones first."""
        return tuple(dict.fromkeys((*self.builtin, *self._named(), *self._points())))

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
        own = [each for each in parameters if each.name not in self._reserved]
        options = tuple(each.name for each in own if each.kind not in _ANY)
        return options, any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)

    def check_options(self, name: str, spec: T, options: Mapping[str, Any]) -> None:
        """Refuse options that an entry does not take."""
        known, takes_any = self.spec_options(spec)
        for option in () if takes_any else options:
            if not known:
                raise UserError(f"{name} takes no options, got {option}.")
            check_known(f"option of {name}", option, known)

    def plugin_of(self, name: str) -> Plugin | None:
        """Return the plug-in that an entry comes from; None for built-in and unknown names."""
        return None if name in self.builtin or name not in self else self._from_plugin(name)[1]

    def require(self, name: str, plugin: str = "") -> None:
        """Check that a name in a file is available, without importing what the file names."""
        if name not in self and plugin:
            raise PluginError(
                f"{self._argument} {name!r} comes from the plug-in {plugin}, which is not loaded. "
                "Install it, or pass its file or module as a plug-in if you trust it."
            )

    def from_plugins(self) -> Iterator[tuple[str, T | PluginError, str]]:
        """Yield the name, the entry (or what is wrong with it) and the plug-in of each entry."""
        for name in dict.fromkeys((*self._named(), *self._points())):
            try:
                spec, plugin = self._from_plugin(name)
                yield name, spec, str(plugin)
            except PluginError as error:
                yield name, error, str(_describe_point(self._points()[name]))

    def _points(self) -> dict[str, EntryPoint]:
        return _entry_points(f"layline.{self.kind}")

    def _from_plugin(self, name: str) -> tuple[T, Plugin]:
        """Return an entry and its plug-in, which is imported if it is installed."""
        named = self._named()
        if name in named:
            return named[name]
        point = self._points()[name]
        plugin = _describe_point(point)
        with refuse_failure(f"{name} of {plugin}"):
            found = point.load()
        return self._adopt_from(plugin, name, found)

    def _named(self) -> dict[str, tuple[T, Plugin]]:
        """Collect the entries of the plug-ins that the user named."""
        entries: dict[str, tuple[T, Plugin]] = {}
        for module, plugin in LOADED.values():
            for name, found in self._list_offers(module).items():
                if name in entries:
                    both = f"{entries[name][1]} and {plugin}"
                    raise PluginError(f"{both} both offer {name!r}. Rename one.")
                entries[name] = self._adopt_from(plugin, name, found)
        return entries

    def _list_offers(self, module: ModuleType) -> Mapping[str, Any]:
        """List what a plug-in offers of this kind: its dictionary, or its public classes."""
        found = vars(module)
        if any(name in found for name in _LISTS):
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

    def _adopt_from(self, plugin: Plugin, name: str, found: Any) -> tuple[T, Plugin]:
        if name in self.builtin:
            raise PluginError(f"{plugin} offers {name!r}, a built-in name. Choose another.")
        try:
            return self._adopt(name, found), plugin
        except TypeError as error:
            got = found.__name__ if isinstance(found, type) else type(found).__name__
            raise PluginError(f"{name} of {plugin} must be {error}, got {got}.") from None


@cache
def _entry_points(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def _describe_point(point: EntryPoint) -> Plugin:
    return Plugin(point.dist.name, point.dist.version) if point.dist else Plugin(point.module)


def first_line(found: Any) -> str:
    """Return the first line of an object's docstring, as a one-line summary."""
    return (found.__doc__ or "").strip().partition("\n")[0].rstrip(".") or "no description"
