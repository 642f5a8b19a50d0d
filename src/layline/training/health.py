"""Signs that training goes wrong in a way that the loss does not show."""

from typing import Any

from layline.heads import OrdinalHead

_TOGETHER = 0.1  # a learned ‖v0‖ starts near 1.4


def worry(head: OrdinalHead) -> str | None:
    """Say what is wrong with the head, if something is.

    Proxies on a line that come together make every distribution flat, their own and those of the
    samples, so the loss is small and nothing is learned.
    """
    layout: Any = getattr(head, "layout", None)
    if getattr(layout, "norm", 0) is not None:
        return None  # fixed, or no line at all
    proxies = layout.proxies()
    step = (proxies[-1] - proxies[0]).norm().item() / (len(proxies) - 1)
    if step >= _TOGETHER:
        return None
    return (
        f"The proxies have come together, {step:.2g} apart, before the features could tell the "
        "classes apart: fix their distance with --set head.options.norm=3, or take a larger --dim"
    )
