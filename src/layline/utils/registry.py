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


class _Outside(NamedTuple):
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
        self._outside: dict[str, _Outside] = {}
        self._collected: dict[str, ModuleType] = {}

    def __getitem__(self, name: str) -> T:
        if name in self.builtin:
            return self.builtin[name]
        self._collect()
        if name not in self._outside and name in self._installed():
            self._outside[name] = self._load(name)
        spec: T = self._outside[name].spec
        return spec

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self.names()

    def __iter__(self) -> Iterator[str]:
        self._collect()
        return iter(dict.fromkeys((*self.builtin, *self._outside, *self._installed())))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def names(self) -> tuple[str, ...]:
        """List all names, built-in ones first."""
        return tuple(iter(self))

    def find(self, name: str) -> T:
        """Look up a name; an unknown one is an error that suggests similar names."""
        if name not in self.builtin:
            check_known(self._argument, name, self.names())
        return self[name]

    def options_of(self, name: str) -> tuple[str, ...]:
        """List the options that an entry takes by name."""
        return self.spec_options(self.find(name))[0]

    def spec_options(self, spec: T) -> tuple[tuple[str, ...], bool]:
        """List the options of an entry, and tell whether it accepts any others."""
        parameters = inspect.signature(getattr(spec, self._build)).parameters.values()
        options = tuple(
            each.name
            for each in parameters
            if each.kind not in _ANY and each.name not in self._reserved
        )
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
        if name in self.builtin or name not in self:
            return None
        self[name]  # imports an installed plug-in
        return self._outside[name].plugin

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
        self._collect()
        points = _entry_points(f"layline.{self.kind}")
        for name in dict.fromkeys((*self._outside, *points)):
            if name in self.builtin:
                error = PluginError(f"{name} is a built-in name. Rename the entry point.")
                yield name, error, _describe_points(points[name])
                continue
            try:
                yield name, self[name], str(self._outside[name].plugin)
            except PluginError as error:
                yield name, error, _describe_points(points[name])

    def _installed(self) -> dict[str, list[EntryPoint]]:
        points = _entry_points(f"layline.{self.kind}")
        return {name: each for name, each in points.items() if name not in self.builtin}

    def _load(self, name: str) -> _Outside:
        """Import an installed plug-in."""
        point, *others = self._installed()[name]
        owner = _describe_points([point])
        if others:
            raise PluginError(
                f"{owner} and {_describe_points(others)} both offer {name!r}. Uninstall one."
            )
        try:
            found = point.load()
        except (Exception, SystemExit) as error:  # a plug-in may fail in any way
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise PluginError(f"{name} of {owner} cannot be imported: {why}") from error
        plugin = Plugin(point.dist.name, point.dist.version) if point.dist else Plugin(point.module)
        return _Outside(self._adopt_object(name, found, owner), plugin)

    def _collect(self) -> None:
        """Take the entries of plug-ins that were loaded since the last call."""
        for module in loaded_modules():
            if self._collected.get(module.__name__) is not module:
                plugin = describe_plugin(module)
                old = {
                    key for key, each in self._outside.items() if each.plugin.name == plugin.name
                }
                entries = self._entries(module, plugin, old)
                kept = {key: each for key, each in self._outside.items() if key not in old}
                self._outside = kept | entries
                self._collected[module.__name__] = module

    def _entries(self, module: ModuleType, plugin: Plugin, old: set[str]) -> dict[str, _Outside]:
        """Make the entries of a plug-in; ``old`` names those that they replace."""
        entries = {}
        for name, found in self._offers(module).items():
            if name in self.builtin:
                raise PluginError(f"{plugin} offers {name!r}, a built-in name. Choose another.")
            points = [each for each in self._installed().get(name, []) if each.load() is not found]
            if (name in self._outside and name not in old) or points:
                other = _describe_points(points) if points else self._outside[name].plugin
                raise PluginError(f"{plugin} and {other} both offer {name!r}. Rename one.")
            entries[name] = _Outside(self._adopt_object(name, found, str(plugin)), plugin)
        return entries

    def _offers(self, module: ModuleType) -> Mapping[str, Any]:
        """List what a plug-in offers of this kind: its dictionary, or its public classes."""
        lists = {
            each: found
            for each in _LISTS
            if isinstance(found := getattr(module, each, None), Mapping)
            and not isinstance(found, Registry)  # imported from this package
        }
        if lists:
            return lists.get(self.kind.upper(), {})
        specs = {type(each) for each in self.builtin.values()}
        return {
            name: found
            for name, found in vars(module).items()
            if not name.startswith("_")
            and (getattr(found, "__module__", "") == module.__name__ or type(found) in specs)
            and (isinstance(found, type) or type(found) in specs)
            and self._is_valid(name, found)
        }

    def _is_valid(self, name: str, found: Any) -> bool:
        try:
            self._adopt(name, found)
        except TypeError:
            return False
        return True

    def _adopt_object(self, name: str, found: Any, owner: str) -> T:
        try:
            return self._adopt(name, found)
        except TypeError as error:
            got = found.__name__ if isinstance(found, type) else type(found).__name__
            raise PluginError(f"{name} of {owner} must be {error}, got {got}.") from None


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
    own = found.__doc__ if isinstance(found, type) or callable(found) else None
    return (own or "").strip().partition("\n")[0].rstrip(".") or "no description"
