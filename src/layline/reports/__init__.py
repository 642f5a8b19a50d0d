"""Pictures and pages of results. They read what a run wrote, and never train.

A page is one file. Names from outside are escaped.
"""

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from layline.utils.validation import require

TEMPLATES = Path(__file__).parent / "templates"
TICK = 18  # characters of a name along an axis
HOVER = 120


def render_page(template: str, scripts: Sequence[str], data: Any, **values: Any) -> str:
    """Make a page that needs no other files and no network; ``data`` are those of the scripts."""
    plotly = require("plotly.offline", extra="report", needed_by="a report")
    names = ("theme.js", "plots.js", *scripts)
    filters = {"shorten": shorten, "number": format_number}
    page: str = read_template(template, filters, autoescape=True, lstrip_blocks=True).render(
        data=script_json(data),
        styles=(TEMPLATES / "report.css").read_text(encoding="utf-8"),
        scripts=[
            plotly.get_plotlyjs(),
            *((TEMPLATES / name).read_text(encoding="utf-8") for name in names),
        ],
        **values,
    )
    return valid_unicode(page)


def read_template(name: str, filters: dict[str, Any], **options: Any) -> Any:
    """Read a template that refuses undefined names."""
    jinja2 = require("jinja2", extra="report", needed_by="a report")
    loader, undefined = jinja2.FileSystemLoader(TEMPLATES), jinja2.StrictUndefined
    environment = jinja2.Environment(
        loader=loader, undefined=undefined, trim_blocks=True, **options
    )
    environment.filters |= {"count": "{:,}".format, **filters}
    return environment.get_template(name)


def script_json(values: Any) -> str:
    """Write JSON that is safe inside a script element."""
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def valid_unicode(text: str) -> str:
    """Replace what is not Unicode, such as half a byte sequence in a file name."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def shorten(text: str, most: int) -> str:
    """Cut a long text in the middle: names differ at their ends."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def plot_text(text: str, most: int = TICK) -> str:
    """Shorten and escape a text for plotly, which interprets some tags."""
    return html.escape(shorten(text, most), quote=False)


def format_number(value: float | None, spec: str = ".3f") -> str:
    """Write a number; a dash if there is none."""
    return "–" if value is None or not np.isfinite(value) else format(value, spec)
