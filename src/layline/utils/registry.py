"""Look up heads, backbones and data sources by name.

Each kind has one :class:`Registry`. It contains the built-in entries, those of the plug-ins that
the user named, and those of installed packages with an entry point in the group ``layline.heads``,
``layline.backbones`` or ``layline.sources``.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from layline.utils.errors import UserError
from layline.utils.plugins import Plugin, PluginError, describe_plugin, loaded_modules
from layline.utils.validation import check_known

T = TypeVar("T")
_LISTS = ("HEADS", "BACKBONES", "SOURCES")
_ANY = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


class _Entry(NamedTuple):
    """An entry of a plug-in."""

    spec: Any
    plugin: Plugin


class Registry(Mapping[str, T]):
    """The entries of one kind by name.

    Installed plug-ins are imported when one of their entries is looked up. A built-in name is never
    replaced.

    Args:
        kind: ``heads``, ``backbones`` or ``sources``.
        argument: What users call a name of this kind, for error messages.
        builtin: The entries of this package.
        adopt: Makes an entry from an object of a plug-in. Raises a ``TypeError`` that says what the
            object must be.
        build: The attribute of an entry that is called to make the object.
        reserved: Parameters of that callable that are not options.
    """

    def __init__(
        self,
        kind: str,
        argument: str,
        builtin: Mapping[str, T],
        adopt: Callable[[str, Any], T],
        build: str = "build",
        reserved: tuple[str, ...] = (),
    ) -> None:
        self.kind, self.builtin = kind, builtin
        self._argument, self._adopt, self._build = argument, adopt, build
        self._reserved = reserved
        self._of_modules: dict[ModuleType, dict[str, _Entry]] = {}
        self._of_points: dict[str, _Entry] = {}

    def __getitem__(self, name: str) -> T:
        spec: T = self.builtin[name] if name in self.builtin else self._outside(name).spec
        return spec

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.builtin, *self._named(), *self._points())))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def names(self) -> tuple[str, ...]:
        """List all names, built-in ones first."""
        return tuple(self)

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
        for option in options:
            if not takes_any and not known:
                raise UserError(f"{name} takes no options, got {option}.")
            if not takes_any:
                check_known(f"option of {name}", option, known)

    def create(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Make the object that a name stands for."""
        spec = self.find(name)
        self.check_options(name, spec, options)
        return getattr(spec, self._build)(*arguments, **options)

    def plugin_of(self, name: str) -> Plugin | None:
        """Return the plug-in that an entry comes from; None for built-in and unknown names."""
        return None if name in self.builtin or name not in self else self._outside(name).plugin

    def require(self, name: str, plugin: str = "") -> None:
        """Check that a name from a file is available, without importing what the file names.

        Args:
            name: The name in the file.
            plugin: The plug-in that it comes from, if the file says so.
        """
        if name not in self and plugin:
            raise PluginError(
                f"{self._argument} {name!r} comes from the plug-in {plugin}, which is not loaded. "
                "Install it, or pass its file or module as a plug-in if you trust it."
            )

    def from_plugins(self) -> Iterator[tuple[str, T | PluginError, str]]:
        """Yield the name, the entry (or what is wrong with it) and the plug-in of each entry."""
        points = self._points()
        for name in dict.fromkeys((*self._named(), *points)):
            try:
                if name in self.builtin:
                    raise PluginError(f"{name} is a built-in name. Rename the entry point.")
                yield name, self[name], str(self._outside(name).plugin)
            except PluginError as error:
                yield name, error, _describe_points(points[name])

    def _points(self) -> dict[str, list[EntryPoint]]:
        return _entry_points(f"layline.{self.kind}")

    def _outside(self, name: str) -> _Entry:
        """Return the entry of a plug-in, which is imported if it is installed."""
        named = self._named()
        if name not in named and name not in self._of_points:
            self._of_points[name] = self._import(name, self._points()[name])
        return named.get(name) or self._of_points[name]

    def _import(self, name: str, points: list[EntryPoint]) -> _Entry:
        owner = _describe_points(points)
        if len(points) > 1:
            raise PluginError(f"{owner} both offer {name!r}. Uninstall one.")
        (point,) = points
        try:
            found = point.load()
        except (Exception, SystemExit) as error:  # a plug-in may fail in any way
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise PluginError(f"{name} of {owner} cannot be imported: {why}") from error
        plugin = Plugin(point.dist.name, point.dist.version) if point.dist else Plugin(point.module)
        return self._make_entry(name, found, plugin)

    def _named(self) -> dict[str, _Entry]:
        """Collect the entries of the plug-ins that the user named."""
        entries: dict[str, _Entry] = {}
        for module in loaded_modules():
            if module not in self._of_modules:
                plugin = describe_plugin(module)
                self._of_modules[module] = {
                    name: self._make_entry(name, found, plugin)
                    for name, found in self._list_offers(module).items()
                }
            for name, entry in self._of_modules[module].items():
                if name in entries:
                    both = f"{entries[name].plugin} and {entry.plugin}"
                    raise PluginError(f"{both} both offer {name!r}. Rename one.")
                entries[name] = entry
        return entries

    def _list_offers(self, module: ModuleType) -> Mapping[str, Any]:
        """List what a plug-in offers of this kind: its dictionary, or its public classes."""
        lists = {each: getattr(module, each, None) for each in _LISTS}
        own = {
            each: found
            for each, found in lists.items()
            if isinstance(found, Mapping) and not isinstance(found, Registry)
        }
        if own:
            return own.get(self.kind.upper(), {})
        return {
            name: found
            for name, found in vars(module).items()
            if isinstance(found, type)
            and not name.startswith("_")
            and found.__module__ == module.__name__
            and self._is_valid(name, found)
        }

    def _is_valid(self, name: str, found: Any) -> bool:
        try:
            self._adopt(name, found)
        except TypeError:
            return False
        return True

    def _make_entry(self, name: str, found: Any, plugin: Plugin) -> _Entry:
        if name in self.builtin:
            raise PluginError(f"{plugin} offers {name!r}, a built-in name. Choose another.")
        try:
            return _Entry(self._adopt(name, found), plugin)
        except TypeError as error:
            got = found.__name__ if isinstance(found, type) else type(found).__name__
            raise PluginError(f"{name} of {plugin} must be {error}, got {got}.") from None


@cache
def _entry_points(group: str) -> dict[str, list[EntryPoint]]:
    """Return the entry points of a group by name; one that is listed twice counts once."""
    found: dict[str, dict[tuple[str, str], EntryPoint]] = {}
    for point in entry_points(group=group):
        package = point.dist.name if point.dist is not None else ""
        found.setdefault(point.name, {})[package, point.value] = point
    return {name: [*points.values()] for name, points in found.items()}


def _describe_points(points: list[EntryPoint]) -> str:
    dists = [str(Plugin(each.dist.name, each.dist.version)) for each in points if each.dist]
    return " and ".join(dists) or points[0].value


def first_line(found: Any) -> str:
    """Return the first line of an object's docstring, as a one-line summary."""
    return (found.__doc__ or "").strip().partition("\n")[0].rstrip(".") or "no description"
