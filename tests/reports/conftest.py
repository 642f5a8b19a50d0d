"""Pages of synthetic runs, taken apart."""

import json
from html.parser import HTMLParser

import pytest

from layline.reports.run import read_run, render_run


class Page(HTMLParser):
    """What a browser would find: elements, texts, and the data."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.words, self.ids = text, [], [], set()
        self._inside = []
        self._data = ""
        self.feed(text)
        self.data = json.loads(self._data)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids.add(dict(attributes).get("id"))
        self._inside.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        while self._inside and self._inside.pop()[0] != tag:
            pass

    def handle_data(self, data):
        tag, attributes = self._inside[-1] if self._inside else ("", {})
        if attributes.get("id") == "report-data":
            self._data += data
        elif tag not in ("script", "style"):
            self.words.append(data)

    def count(self, tag):
        return sum(each == tag for each, _ in self.tags)


@pytest.fixture(scope="session")
def page():
    """Write the report of a folder, and read it again."""
    return lambda folder: Page(render_run(read_run(folder)))
