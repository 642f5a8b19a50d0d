"""What the site adds to the Markdown in ``docs/``, which GitHub shows as it is.

- Pages that have another source: the reference (docstrings), tutorials (``examples/``), published
  results, the changelog. Links from a document to these files lead to their pages.
- Formulas become MathML, which browsers draw by themselves: no script and no font is fetched.
- Docstrings, which are written for ``help()``, become Markdown.
- What ``made_pages.py`` has left in ``build/site``: the outputs of the tutorials and the reports
  of the gallery. Without them the tutorials show no output and the gallery its pictures alone.
"""

import ast
import html
import json
import os
import posixpath
import re
import textwrap
from importlib import import_module
from pathlib import Path

import griffe
from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
MADE = Path(os.environ.get("LAYLINE_SITE_MADE", ROOT / "build" / "site"))
PACKAGE = ROOT / "src" / "layline"

# Pages of the reference: the title, the module, and what stands on top.
REFERENCE = {
    "api/layline.md": (
        "layline",
        "layline",
        "What `import layline` has. `heads`, `geometry` and `metrics` have pages of their own.",
    ),
    "api/heads.md": (
        "layline.heads",
        "layline.heads",
        "The methods as PyTorch modules; [what each is](../methods.md).",
    ),
    "api/geometry.md": (
        "layline.geometry",
        "layline.geometry",
        "The parts of a layout; [their equations](../method.md).",
    ),
    "api/metrics.md": ("layline.metrics", "layline.metrics", ""),
}
# Public by what they are returned from: the class, and the page that it is on.
INHERITED = ["classes", "predict", "predict_proba", "predict_range"]  # not all of a module's
RETURNED = {"layline.model.model.OrdinalModel": "What `layline.load` and `run.model` give."}
# The one place of a name that several modules offer.
HOMES = {"ConstrainedProxies": "layline.heads", "OrdinalHead": "layline.heads"}
HOMES |= {"create": "layline.heads", "names": "layline.heads"}


def public_names(module):
    """Return the public names of a module."""
    return list(import_module(module).__all__)


def reference_names(module):
    """Name what stands on the page of a module: its public names that have no other home."""
    modules = {name.rpartition(".")[2] for _, name, _ in REFERENCE.values()}
    return [  # classes, functions, then registries
        f"{module}.{name}"
        for name in sorted(public_names(module), key=lambda name: (name.isupper(), name))
        if name not in modules and not name.startswith("_") and HOMES.get(name, module) == module
    ]


# --- pages with another source ---------------------------------------------------------------


def on_config(config):
    """Write the folders of the navigation out."""
    config.nav = _expanded(config.nav)
    return config


def _expanded(nav):
    if isinstance(nav, list):
        expanded = []
        for item in nav:
            folder = item.removesuffix("/*") if isinstance(item, str) else None
            if folder is None or folder == item:
                expanded.append(_expanded(item))
            elif folder == "results":
                expanded += list(_results_pages())
            else:
                pages = sorted((ROOT / "docs" / folder).glob("*.md"), key=lambda page: page.name)
                expanded += [f"{folder}/{page.name}" for page in pages]
        return expanded
    return {name: _expanded(item) for name, item in nav.items()} if isinstance(nav, dict) else nav


def on_files(files, config):
    """Add the pages and files that do not lie in ``docs/``."""
    pages = {
        "changelog.md": _text("CHANGELOG.md"),
        "contributing.md": _text("CONTRIBUTING.md"),
        "formulas.md": _formulas(),
        **{f"tutorials/{path.stem}.md": tutorial(path) for path in ROOT.glob("examples/*.py")},
        **_results_pages(),
    }
    for page, (title, module, intro) in REFERENCE.items():
        blocks = "\n\n".join(f"::: {name}" for name in reference_names(module))
        pages[page] = f"# {title}\n\n{intro}\n\n{blocks}\n"
    pages["api/model.md"] = "# The model\n\n" + "\n\n".join(
        f"{what}\n\n::: {name}\n    options: {{inherited_members: {INHERITED}}}"
        for name, what in RETURNED.items()
    )
    for uri, content in pages.items():
        files.append(File.generated(config, uri, content=content))
    for path in (ROOT / "CITATION.cff", ROOT / "LICENSE", *ROOT.glob("results/**/*.*")):
        if path.suffix != ".md":
            uri = path.relative_to(ROOT).as_posix()
            uri = uri + ".txt" if uri in ("LICENSE", "CITATION.cff") else uri
            files.append(File.generated(config, uri, content=path.read_bytes()))
    for path in MADE.glob("gallery/*.html"):
        files.append(File.generated(config, f"gallery/{path.name}", content=path.read_bytes()))
    return files


def _text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def _results_pages():
    """Make a page of each folder of results: its tables, its pictures, and its files."""
    pages = {}
    for folder in sorted(path for path in (ROOT / "results").iterdir() if path.is_dir()):
        parts = [f"---\nsearch: {{exclude: true}}\n---\n# Results: {folder.name}\n"]
        files = sorted(p for p in folder.rglob("*.*") if p.suffix not in (".md", ".png"))
        parts += [f"- [{p.name}]({folder.name}/{p.relative_to(folder).as_posix()})" for p in files]
        for picture in sorted(folder.rglob("*.png")):
            place = picture.relative_to(folder).as_posix()
            parts.append(f"\n![{picture.stem}]({folder.name}/{place})")
        for table in sorted(folder.rglob("*.md")):
            parts.append(f"\n## {table.stem}\n\n{table.read_text(encoding='utf-8')}")
        pages[f"results/{folder.name}.md"] = "\n".join(parts)
    return pages


def _formulas():
    """Show the formulas that stand on top of the modules with the heads."""
    parts = [
        "# Formulas of every method",
        "As they stand on top of the source files in `src/layline/heads/`; "
        "[what each method is for](methods.md).",
    ]
    for path in sorted((PACKAGE / "heads").glob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        if ".. math::" in docstring:
            parts += [f"## {path.stem}", docstring_markup(docstring)]
    return "\n\n".join(parts)


def split_tutorial(path):
    """Cut a script into its texts and its code.

    The docstring and each comment that has an empty line before and after it are texts.
    """
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    docstring = ast.get_docstring(tree)
    rest = "\n".join(source.splitlines()[tree.body[0].end_lineno :])
    title, _, intro = docstring.partition("\n")
    parts = [("text", f"# {title.rstrip('.')}\n{intro}")]
    for block in re.split(r"\n{2,}", rest.strip("\n")):
        lines = block.splitlines()
        if all(line.startswith("#") for line in lines):
            parts.append(
                ("text", "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines))
            )
        elif parts[-1][0] == "code":
            gap = "\n\n\n" if re.match(r"def |class |@|if __name__", block) else "\n\n"
            parts[-1] = ("code", parts[-1][1] + gap + block)
        else:
            parts.append(("code", block))
    return parts


def tutorial(path):
    """Make the page of a script: its texts, its code, and what that printed."""
    made = MADE / "tutorials" / f"{path.stem}.json"
    outputs = json.loads(made.read_text(encoding="utf-8")) if made.exists() else {}
    parts, number = [], 0
    for kind, text in split_tutorial(path):
        if kind == "text":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        if said := outputs.get(str(number), "").strip("\n"):
            parts.append(f'<div class="output" markdown>\n\n```text\n{said}\n```\n\n</div>')
        number += 1
    parts.append(f"*This page is the script `examples/{path.name}`.*")
    return "\n\n".join(parts) + "\n"


# --- links out of docs/ ----------------------------------------------------------------------

_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
_ELSEWHERE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "LICENSE": "LICENSE.txt",
    "CITATION.cff": "CITATION.cff.txt",
    "docs/decisions": "decisions/README.md",
}


def on_page_markdown(markdown, page, config, files):
    """Let links lead to the pages of what they name."""
    uri = page.file.src_uri
    at_root = uri in ("changelog.md", "contributing.md")
    here = "." if at_root else posixpath.join("docs", posixpath.dirname(uri))
    if uri.startswith("tutorials/"):
        here = "examples"

    def lead(match):
        target = _site_place(posixpath.normpath(posixpath.join(here, match[2])))
        if target is None or uri.startswith(("api/", "results/")):
            return match[0]
        return match[1] + posixpath.relpath(target, posixpath.dirname(uri)) + (match[3] or "") + ")"

    markdown = _LINK.sub(lead, markdown)
    if uri == "decisions/README.md":
        titles = [
            (path.name, _title(path)) for path in sorted((ROOT / "docs/decisions").glob("*.md"))
        ]
        listed = "\n".join(f"- [{title}]({name})" for name, title in titles if name != "README.md")
        markdown = f"{markdown}\n\n{listed}\n"
    if uri == "gallery.md":
        markdown = _linked_pictures(markdown)
    return markdown


def _site_place(place):
    """Find where on the site a file of the repository is."""
    if place in _ELSEWHERE:
        return _ELSEWHERE[place]
    if place.startswith("docs/"):
        return place.removeprefix("docs/")
    if found := re.fullmatch(r"examples/(\w+)\.py", place):
        return f"tutorials/{found[1]}.md"
    if found := re.fullmatch(r"results/(\w+)(/tables)?", place):
        return f"results/{found[1]}.md"
    return place if place.startswith("results/") else None


def _title(path):
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _linked_pictures(markdown):
    """Let the pictures of the gallery lead to the reports, where these were made."""

    def link(match):
        page = f"gallery/{Path(match[2]).stem}.html"
        if not (MADE / page).exists():
            return match[0]
        return f"[{match[0]}]({page})\n\n[Open the page]({page}){{ .md-button }}"

    return re.sub(r"!\[([^\]]*)\]\((images/gallery/[^)]*)\)", link, markdown)


# --- formulas --------------------------------------------------------------------------------

_KNOWN_AS = {"{aligned}": "{align*}", r"\mathbb 1": "𝟙", r"\arg": r"\operatorname{arg}\,"}
_FUNCTION = re.compile(
    r"(?<!<msub>)(?<!<msup>)<m[io]>(?:log|exp|cos|sin)</m[io]>(?!<mo[^>]*>(?:&#x00028;|\())"
)
_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\s*\\[(\[](.*?)\\[)\]]\s*</\1>', flags=re.DOTALL
)


def on_page_content(content, page, config, files):
    """Turn formulas into MathML."""

    def to_mathml(match):
        display = "block" if match[1] == "div" else "inline"
        try:
            formula = convert(_prepared(html.unescape(match[2])), display=display)
        except Exception as error:  # the library's own kinds have no common base
            raise PluginError(f"{page.file.src_uri}: {match[2]}: {error!r}") from error
        if re.search(r">(\\\w+|&)<", formula):  # it writes down what it does not know
            raise PluginError(f"{page.file.src_uri}: {match[2]}: became {formula}")
        # a thin space between the name of a function and what is not in brackets
        formula = _FUNCTION.sub(r'\g<0><mspace width="0.167em" />', formula)
        return f'<div class="formula">{formula}</div>' if display == "block" else formula

    content = _FORMULA.sub(to_mathml, content)
    if 'class="arithmatex"' in content:
        raise PluginError(f"{page.file.src_uri}: a formula was not understood")
    if page.file.src_uri == "methods.md":  # each method can be linked to
        content = re.sub(
            r"<strong><code>([a-z0-9-]+)</code></strong>",
            r'<strong id="\1"><code>\1</code></strong>',
            content,
        )
    return content


def _prepared(formula):
    """Write a formula as the converter knows it."""
    formula = formula.strip()
    for theirs, ours in _KNOWN_AS.items():
        formula = formula.replace(theirs, ours)
    if re.search(r"&|\\\\", formula) and r"\begin" not in formula:
        formula = rf"\begin{{align*}}{formula}\end{{align*}}"
    return formula


# --- docstrings ------------------------------------------------------------------------------


def docstring_markup(text):
    """Turn the roles and directives of a docstring into Markdown."""

    def block(match):
        formula = textwrap.dedent(match[2] + "\n" + match[3]).strip()
        return textwrap.indent(f"\n$$\n{formula}\n$$\n", match[1])

    text = re.sub(r"^( *)\.\. math::(.*)\n((?:\1 +\S.*\n?)*)", block, text + "\n", flags=re.M)
    text = re.sub(r"^( *)Example:$", r"\1Examples:", text, flags=re.M)  # that section is code
    text = re.sub(r":math:`([^`]*)`", lambda m: f"${' '.join(m[1].split())}$", text)
    return re.sub(r":(?:class|func|meth|mod|data|attr):`([^`]*)`", _reference, text).rstrip("\n")


def _reference(match):
    target = match[1].lstrip("~")
    shown = target.rpartition(".")[2] if match[1].startswith("~") else target
    return f"[`{shown}`][{target}]" if target in _all_references() else f"`{shown}`"


def _all_references():
    return {name for _, module, _ in REFERENCE.values() for name in reference_names(module)}


class DocstringMarkup(griffe.Extension):
    """Prepares every docstring before it is read."""

    def on_object(self, *, obj, **_):
        """Rewrite the docstring of an object."""
        if obj.docstring and not obj.is_alias:
            obj.docstring.value = docstring_markup(obj.docstring.value)
