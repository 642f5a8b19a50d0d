"""The site: built without a warning, complete, readable, and without any request to a network."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import layline

ROOT = Path(__file__).parents[2]
PAGES = ["index", "method", "formulas", "gallery", "tutorials/table", "api/heads", "benchmark"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site as ``make docs`` does, which checks links, anchors and navigation."""
    folder = tmp_path_factory.mktemp("site")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "LAYLINE_SITE_MADE": str(folder / "none")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    return folder


def read(site, page):
    return (site / f"{page}.html").read_text(encoding="utf-8")


def test_no_page_asks_a_network_for_anything(site):
    """Links to be clicked may lead anywhere; what a browser loads by itself is in the folder."""
    asks = re.compile(
        r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc\s*="
        r"\s*[\"']?((?:https?:)?//[^\"'> ]+)"
        r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*\bhref\s*=\s*[\"']?((?:https?:)?//[^\"'> ]+)"
        r"|(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"') ]+)"
    )
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 40
    assert {
        str(page): found for page in pages if (found := asks.findall(page.read_text("utf-8")))
    } == {}


def test_every_public_name_is_in_the_reference(site):
    hooks = runpy.run_path(str(ROOT / "docs" / "_site" / "hooks.py"))
    text = "".join(path.read_text(encoding="utf-8") for path in (site / "api").glob("*.html"))
    for module in (layline, layline.heads, layline.geometry, layline.metrics):
        for name in module.__all__:
            if not name.startswith("_") and name not in ("heads", "geometry", "metrics"):
                home = hooks["HOMES"].get(name, module.__name__)
                assert f'id="{home}.{name}"' in text, name
    assert ":math:" not in text
    assert ".. math::" not in text
    assert ":func:" not in text


def test_every_formula_is_drawn_by_the_browser(site):
    text = read(site, "method")
    shown = re.sub(r"<[^>]*>", "", text.replace("&#x00028;", "(").replace("&#x00029;", ")"))
    for number in range(1, 22):
        assert f"({number})" in re.sub(r"\s", "", shown)
    assert text.count('display="block"') >= 21
    for page in site.rglob("*.html"):
        assert not re.search(r"\$\$|\\\(|arithmatex", page.read_text(encoding="utf-8")), page


@pytest.fixture
def open_page(visit, site):
    """Open a page of the site from its folder, offline."""
    return lambda name, *options, **more: visit((site / f"{name}.html").as_uri(), *options, **more)


def test_pages_fit_a_phone_and_a_wide_screen(open_page):
    for name in PAGES:
        for width in (390, 1280):
            page = open_page(name, width)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
            assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth)")
