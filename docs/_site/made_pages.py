"""Make what the site shows of real runs: outputs of the tutorials, reports of the gallery.

    python docs/_site/made_pages.py              # into build/site, what is not there yet
    python docs/_site/made_pages.py --pictures   # the gallery's pictures too, with chromium

It takes a few minutes, once: what was made by the same scripts and the same code is kept.
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hooks import MADE, ROOT, split_tutorial
from PIL import Image

from layline import __version__

PICTURES = ROOT / "docs" / "images" / "gallery"
# Pages of the gallery: the commands, which docs/gallery.md shows, and the file that they leave.
GALLERY = {
    "run": (
        "layline train photo-quality --backbone convnet --epochs 12 --out committee",
        "committee/report.html",
    ),
    "table": (
        "layline train table --root diabetes.csv --label grade --out table",
        "table/report.html",
    ),
    "comparison": (
        "layline train photo-quality --backbone convnet --epochs 12 \\\n"
        "    --method classification --out classification\n"
        "layline compare committee classification --out comparison.html",
        "comparison.html",
    ),
    "grid": (
        "layline bench diabetes.csv wine.csv --label grade --seeds 3 --set training.epochs=15 \\\n"
        "    --methods committee,hard-linear,soft-poisson,coral,classification --out grid",
        "grid/report.html",
    ),
}


def make_tutorial(path):
    """Run a script part by part, and keep what each printed."""
    named = _fingerprint(path.read_text(encoding="utf-8"))
    made = MADE / "tutorials" / f"{path.stem}.json"
    if made.exists() and json.loads(made.read_text(encoding="utf-8")).get("made_by") == named:
        return
    place, outputs = {"__name__": "__main__", "__file__": str(path)}, {"made_by": named}
    parts = [text for kind, text in split_tutorial(path) if kind == "code"]
    given, sys.argv[1:] = sys.argv[1:], []  # a script may read its own
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, text in enumerate(parts):
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(text, str(path), "exec"), place)
            outputs[str(number)] = said.getvalue().replace(folder, "…")
    sys.argv[1:] = given
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_text(json.dumps(outputs, indent=1), encoding="utf-8")


def make_gallery():
    """Train small runs by the command, and keep their reports."""
    named = _fingerprint(repr(GALLERY))
    marker = MADE / "gallery" / "made-by.txt"
    if marker.exists() and marker.read_text() == named:
        return
    with tempfile.TemporaryDirectory() as folder:
        _write_tables(Path(folder))
        for name, (commands, page) in GALLERY.items():
            for line in commands.replace("\\\n", "").splitlines():
                subprocess.run(
                    [sys.executable, "-m", *line.split()],
                    **{"cwd": folder, "check": True, "stdout": subprocess.DEVNULL},
                    env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
                )
            (MADE / "gallery").mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(folder) / page, MADE / "gallery" / f"{name}.html")
    marker.write_text(named)


def _write_tables(folder):
    """Write the tables of the tutorial on research."""
    place = {}
    script = (ROOT / "examples" / "research.py").read_text(encoding="utf-8")
    exec(compile(script.split("# ## The grid")[0], "research.py", "exec"), place)
    for path in place["place"].glob("*.csv"):
        shutil.move(path, folder / path.name)


def make_pictures():
    """Take a picture of each page of the gallery, small enough for the repository."""
    from playwright.sync_api import sync_playwright

    PICTURES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        for name in GALLERY:
            page.goto((MADE / "gallery" / f"{name}.html").as_uri())
            page.wait_for_timeout(2000)
            image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            small = image.resize((1000, 750), Image.Resampling.LANCZOS).quantize(64)
            small.save(PICTURES / f"{name}.png", optimize=True)
        browser.close()


def _fingerprint(text):
    return hashlib.sha256(f"{text}{__version__}".encode()).hexdigest()


if __name__ == "__main__":
    for script in sorted(ROOT.glob("examples/*.py")):
        make_tutorial(script)
    make_gallery()
    if "--pictures" in sys.argv:
        make_pictures()
