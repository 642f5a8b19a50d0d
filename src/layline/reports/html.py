"""How a page is put together: a template, its data, its styles and scripts, all in one file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layline.optional import require
from layline.reports.text import shortened

TEMPLATES = Path(__file__).parent / "templates"
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
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["shortened"] = shortened
    page: str = environment.get_template(template).render(
        data=embedded(data),
        styles=_own("report.css"),
        scripts=[plotly.get_plotlyjs(), *map(_own, ("theme.js", "plots.js", *scripts))],
        **values,
    )
    return page


def embedded(values: Any) -> str:
    """Write JSON that may stand inside a script element, whatever its strings hold."""
    text = json.dumps(values, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _own(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")
