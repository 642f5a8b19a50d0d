"""A root that is one file, or a folder with just one of its kind."""

from collections.abc import Iterable
from pathlib import Path

from layline.data.natural import natural_order


def only_file(root: str | Path, suffixes: tuple[str, ...]) -> Path:
    """Give the file that a root means."""
    root = Path(root)
    if not root.exists():
        raise FileNotFoundError(f"root must exist, got {root}: check the path")
    if not root.is_dir():
        return root
    files = [
        file.name
        for file in root.iterdir()
        if file.suffix.lower() in suffixes and not file.name.startswith(".")
    ]
    if len(files) != 1:
        found = listed(natural_order(sorted(files))) if files else "none"
        raise ValueError(
            f"root must be one file of the kind {' or '.join(suffixes)}, got the folder {root} "
            f"with {found}: name the file"
        )
    return root / files[0]


def listed(items: Iterable[object]) -> str:
    """Write the first twenty items, and how many there are where that is not all."""
    texts = [str(item) for item in items]
    rest = f" … ({len(texts)} in all)" if len(texts) > 20 else ""
    return ", ".join(texts[:20]) + rest
