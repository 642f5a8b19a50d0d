"""What there is of a kind by name: what is built in, and what plug-ins have."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from layline.utils.plugins.importing import (
    KINDS,
    Plugin,
    import_plugin,
    is_vouched,
    named_plugins,
    register,
)
from layline.utils.plugins.references import PluginError, full_reference, is_reference
from layline.utils.validation import check_known

_T = TypeVar("_T")


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
        for kind in KINDS
        for points in _entry_points(f"layline.{kind}").values()
        for point in points
    )


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
        register(kind, self)

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
            if name in self or is_vouched(name) or self._is_offered(name):
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
        plugin = named_plugins().get(module)
        if plugin is None:
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
                    yield name, error, " and ".join(map(_package_of, self._installed()[name]))
        for name, points in _entry_points(f"layline.{self.kind}").items():
            if name in self.builtin:
                wrong = PluginError(f"{name} is built in and cannot be replaced: rename it")
                yield name, wrong, " and ".join(map(_package_of, points))

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
        for plugin in named_plugins().values():
            self.offered(plugin)

    def _installed(self) -> Mapping[str, tuple[EntryPoint, ...]]:
        points = _entry_points(f"layline.{self.kind}")
        return {name: found for name, found in points.items() if name not in self.builtin}

    def _load(self, name: str) -> _Entry[_T]:
        """Import an installed plug-in."""
        point, *others = self._installed()[name]
        if others:
            raise PluginError(
                f"plug-ins must have different names, got {name} in {_package_of(point)} and in "
                f"{_package_of(others[0])}: uninstall one of them"
            )
        plugin = import_plugin(full_reference(point.module), distribution=_package_of(point))
        try:
            found = point.load()
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise PluginError(
                f"plugin must be importable, got {name} of {_package_of(point)}: {why}"
            ) from error
        return _Entry(self._adopted(name, found, plugin), plugin)

    def _entries(self, plugin: Plugin) -> dict[str, _Entry[_T]]:
        """Make the entries of a plug-in, and refuse those whose names are taken."""
        module = plugin.module
        lists = {
            kind: value
            for kind, attribute in KINDS.items()
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
                    label = _package_of(point)
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
                f"{name} of {plugin.reference} must be {error}, got {_kind_of(found)}"
            ) from None


def _package_of(point: EntryPoint) -> str:
    return point.value if point.dist is None else f"{point.dist.name} {point.dist.version}"


def _is_of(value: Any, plugin: Plugin) -> bool:
    """Tell whether a class was defined in a plug-in; an entry is of whoever has it."""
    return not isinstance(value, type) or value.__module__ in plugin.modules


def _kind_of(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def summary_of(found: Any) -> str:
    """Give the first line of an object's docstring, for a list."""
    own = found.__doc__ if isinstance(found, type) or callable(found) else None
    return (own or "").strip().partition("\n")[0].rstrip(".") or "no description"
