"""A browser without a network, for the pages that we write."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
    *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),  # a camera
]
INSTALL = ["apt-get update -qq", "apt-get install -y -qq chromium"]


def find_chromium():
    """Find Debian's chromium, and install it where that is possible."""
    lock = Path(tempfile.gettempdir()) / "layline-chromium.lock"
    with FileLock(lock):  # tests run in several processes
        found = shutil.which("chromium")
        if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
            for command in INSTALL:
                subprocess.run(command.split(), check=False, capture_output=True, timeout=600)
            found = shutil.which("chromium")
    return found


@pytest.fixture(scope="module")
def browser():
    """Start a browser, one for each module."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("chromium is missing and could not be installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def visit(browser):
    """Open a page; errors on it, and requests to any other place, fail the test."""
    contexts, faults = [], []

    def open_page(
        url, width=1280, scheme="light", own=("file:", "data:", "blob:"), offline=True, **options
    ):
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            offline=offline,
            **options,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: said.type == "error" and faults.append(said.text))
        page.on("request", lambda asked: asked.url.startswith(own) or faults.append(asked.url))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    # a refusal of the server is no fault of the page
    assert [each for each in faults if "status of 422" not in each] == []
