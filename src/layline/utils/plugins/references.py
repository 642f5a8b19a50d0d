"""What a plug-in is called, where its source is and what that does: nothing of it is run here."""

import hashlib
import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

from layline.utils.source_code import file_below, hash_modules, modules_below, parsed

_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class PluginError(ValueError):
    """A plug-in is not there, cannot be imported, or is not what it should be."""


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
    spec = spec_of(package)
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


def spec_of(package: str) -> ModuleSpec | None:
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


def distribution_of(reference: str) -> str:
    """Name the installed package of a module, with its version; empty for a file."""
    if is_path(reference):
        return ""
    names = _distributions().get(reference.partition(".")[0], [])
    return f"{names[0]} {version(names[0])}" if names else ""


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()
