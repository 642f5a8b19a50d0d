"""The README as a package index shows it: without the links and pictures of this repository.

An index has the README and none of the files beside it, so a relative link would be dead there and
a picture a hole. Their texts stay, and links into the page and to the web.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# a picture with its caption in italics, up to the empty line; then any other relative link
_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n(\*[^*]+?\*\n\n)?", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)[^)]*\)")


def index_readme(text: str) -> str:
    """Take relative pictures and links out of a README."""
    return _LINK.sub(r"\1", _PICTURE.sub("", text))


class CustomMetadataHook(MetadataHookInterface):
    """Gives the build its README."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the README of the metadata."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": index_readme(text)}
