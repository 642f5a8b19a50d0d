"""Rendering a page into one file, and names from outside so that they are safe on it."""

import html
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from layline.utils.optional import require

TEMPLATES = Path(__file__).parent / "templates"
TICK = 18  # characters beside an axis
HOVER = 120
_NEEDED_BY = "a report"


def render_page(template: str, scripts: Sequence[str], data: Any, **values: Any) -> str:
    """Make a page that needs neither other files nor a network.

    Args:
        template: Its name.
        scripts: Names of the scripts that follow plotly's and the theme's.
        data: What the scripts read, as JSON.
        **values: What the template shows.
    """
    jinja2 = require("jinja2", extra="report", needed_by=_NEEDED_BY)
    plotly = require("plotly.offline", extra="report", needed_by=_NEEDED_BY)
    page: str = (
        _environment(jinja2)
        .get_template(template)
        .render(
            data=script_json(data),
            styles=_read_template("report.css"),
            scripts=[
                plotly.get_plotlyjs(),
                *map(_read_template, ("theme.js", "plots.js", *scripts)),
            ],
            **values,
        )
    )
    return page


@cache  # a template is compiled once, however many pages follow
def _environment(jinja2: Any) -> Any:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["shortened"] = shortened
    return environment


def _read_template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def script_json(values: Any) -> str:
    """Write JSON that may stand inside a script element, whatever its strings hold."""
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def valid_unicode(text: str) -> str:
    """Put a question mark for what is no Unicode, such as half a byte sequence of a file name."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def shortened(text: str, most: int) -> str:
    """Cut a text that is too long, in the middle: names differ at their ends."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def plot_text(text: str, most: int = TICK) -> str:
    """Make a text fit for plotly, which reads some tags in what it draws."""
    return html.escape(shortened(valid_unicode(text), most), quote=False)
