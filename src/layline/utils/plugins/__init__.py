"""Code from outside: heads, features and sources of data that somebody else wrote.

There are three ways to one. An installed package has an entry point in the group ``layline.heads``,
``layline.backbones`` or ``layline.sources``. A user names a file, the folder of a package or a
module, as ``--plugin my_head.py``. Or the name of a method is itself a place, such as
``my_package.heads:MyHead``. Nothing is imported before it is asked for.

A file may have dictionaries ``HEADS``, ``BACKBONES`` and ``SOURCES``; without them its public
classes and entries count, by their own names. A built-in name is never replaced.

What a plug-in does is known by a hash of its modules (``layline.utils.source_code``): those it
imports from its own package or, for a file, from its folder.
"""

from layline.utils.plugins.importing import Plugin, import_plugin, refresh, use
from layline.utils.plugins.references import (
    PluginError,
    digest_of,
    distribution_of,
    full_reference,
    is_library,
    is_path,
    is_reference,
    module_name,
    source_files,
    version_of,
)
from layline.utils.plugins.registry import Registry, is_installed, summary_of

__all__ = [
    "Plugin",
    "PluginError",
    "Registry",
    "digest_of",
    "distribution_of",
    "full_reference",
    "import_plugin",
    "is_installed",
    "is_library",
    "is_path",
    "is_reference",
    "module_name",
    "refresh",
    "source_files",
    "summary_of",
    "use",
    "version_of",
]
