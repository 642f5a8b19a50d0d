"""Finding images that cannot be read, before training rather than in the middle of it."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from layline.data.base import Images
from layline.data.images.decoding import check_size, why_bad
from layline.data.images.files import ImageFiles
from layline.data.images.threads import thread_map


@dataclass(frozen=True)
class BadImage:
    """An image that cannot be read, and why, in a few words."""

    index: int
    name: str
    why: str


def find_bad(
    images: Images,
    at_least: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[BadImage]:
    """List the images that cannot be read, in their order.

    Every image is read, unless its files are known already, see :mod:`layline.data.images.index`.

    Args:
        images: What to read.
        at_least: The size to decode at. None decodes a JPEG at an eighth of its size: that still
            reads every byte, so it finds the same files.
        progress: Called with the number of images read so far.
    """
    check_size(at_least)
    known = images.index if isinstance(images, ImageFiles) else None
    if known is not None:
        return [BadImage(i, images.names[i], why) for i, why in known.faults.items()]

    def fault(index: int) -> str | None:
        try:
            images.load(index, at_least or 1)
        except Exception as error:  # garbage makes Pillow raise almost anything
            return why_bad(error)
        return None

    bad = []
    with closing(thread_map(fault, len(images))) as faults:
        for index, why in enumerate(faults):
            if why is not None:
                bad.append(BadImage(index, images.names[index], why))
            if progress is not None:
                progress(index + 1)
    return bad


def describe_bad(bad: Sequence[BadImage], limit: int = 20, cure: bool = True) -> str:
    """Tell a user which images cannot be read, ``limit`` of them, and how to go on."""
    if not bad:
        return "every image can be read"
    lines = [f"{len(bad)} image{'s' if len(bad) > 1 else ''} cannot be read:"]
    lines += [f"  {image.name}: {image.why}" for image in bad[:limit]]
    if len(bad) > limit:
        lines.append(f"  … and {len(bad) - limit} more")
    if cure:
        lines.append("Mend or remove them, or leave them out with --skip-bad")
    return "\n".join(lines)
