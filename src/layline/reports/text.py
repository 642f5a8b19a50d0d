"""Names from outside on a page: readable, of bounded length, and never taken for markup."""

from html import escape

TICK = 18  # characters beside an axis
HOVER = 120


def readable(text: str) -> str:
    """Put a question mark for what is no Unicode, such as half a byte sequence of a file name."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def shortened(text: str, most: int) -> str:
    """Cut a text that is too long, in the middle: names differ at their ends."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def in_plot(text: str, most: int = TICK) -> str:
    """Make a text fit for plotly, which reads some tags in what it draws."""
    return escape(shortened(readable(text), most), quote=False)
