"""What the rendered site has besides the pages of `docs`: the pages of the root, and the files that pages link to.

`mkdocs.yml` names this module as a hook; `make docs-site` builds the site. A page of `docs` links to a file of the
repository by its path, as readers of the repository need it. In the site such a file is a page, too, below `source/`.
A link that leads to no file stays as it is, and the strict build refuses it.

The site is whole in its folder: the build ends with an error that lists what a page would load from elsewhere.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

PROJECT = Path(__file__).parent.parent
ROOT_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
"""Pages at the root of the repository, and where they lie in the site."""

_LINK = re.compile(r"\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_LANGUAGES = {
    ".py": "python",
    ".sh": "sh",
    ".toml": "toml",
    ".yml": "yaml",
    ".json": "json",
    ".go": "go",
    ".java": "java",
}
_COMMENT = re.compile(r"\A<!--.*?-->\n", re.DOTALL)
_LOADED_FROM_CSS = re.compile(r"(?:url\(\s*|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, and a page for each file of the repository that a page links to."""
    for path, place in ROOT_PAGES.items():
        files.append(File.generated(config, place, content=(PROJECT / path).read_text(encoding="utf-8")))
    waiting = {
        path
        for file in files.documentation_pages()
        for path in _linked_files(file.content_string, _origin(file.src_uri))
        if path not in ROOT_PAGES
    }
    added: set[str] = set()
    while waiting:
        path = waiting.pop()
        added.add(path)
        hidden = InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, _place(path), content=_page_of(path), inclusion=hidden))
        if (PROJECT / path).is_dir():
            waiting.update({f"{path}/{name}" for name in _names(path)} - added)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with links to where the site has the files of the repository.

    A comment in front of the heading goes, because MkDocs would look no further for the page's title.
    """
    place = page.file.src_uri
    if place.startswith("source/"):
        return markdown
    return _LINK.sub(lambda link: _moved(link, _origin(place), place), _COMMENT.sub("", markdown))


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site whose pages or styles load anything from elsewhere."""
    loaded = [
        f"{file.relative_to(config.site_dir)}: {address}"
        for file in sorted(Path(config.site_dir).rglob("*"))
        if file.suffix in (".html", ".css", ".svg")
        for address in loaded_from_elsewhere(file.read_text(encoding="utf-8"), file.suffix)
    ]
    if loaded:
        raise PluginError("pages load from elsewhere; give the site a copy:\n  " + "\n  ".join(loaded))


def loaded_from_elsewhere(text: str, suffix: str) -> list[str]:
    """The addresses that a browser loads by itself when it shows the page or applies the style sheet."""
    found = _LOADED_FROM_CSS.findall(text)
    if suffix == ".html":
        reader = _Loads()
        reader.feed(text)
        found += reader.found
    return found


class _Loads(HTMLParser):
    """Collects addresses of other hosts that a page loads by itself; links that people follow are none."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at the attributes of one element that name what is loaded."""
        loading = {"src", "srcset", "poster", "data"} | (
            {"href", "xlink:href"} if tag in ("link", "image", "use") else set()
        )
        self.found += [
            value for name, value in attrs if name in loading and value and re.match(r"(https?:)?//", value.strip())
        ]


def _place(path: str) -> str:
    """Where the site has a file or folder of the repository."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}/index.md" if (PROJECT / path).is_dir() else f"source/{path}.md"


def _origin(place: str) -> str:
    """The file of the repository that a page of the site was written in."""
    return next((path for path, page in ROOT_PAGES.items() if page == place), f"docs/{place}")


def _moved(link: re.Match[str], origin: str, place: str) -> str:
    """A link of a file of the repository as its page needs it, which lies at `place` in the site."""
    path = _path_in_repository(link["target"], origin)
    if path is None:
        return link[0]
    target = _place(path)
    anchor = "" if target.startswith("source/") else link["anchor"] or ""
    return f"]({posixpath.relpath(target, posixpath.dirname(place))}{anchor})"


def _path_in_repository(target: str, origin: str) -> str | None:
    """The path of what a file links to; None for other hosts, for what is missing, and from `docs` into `docs`."""
    if ":" in target:
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
    stays = origin.startswith("docs/") and path.startswith("docs/")
    return None if stays or path.startswith("..") or not (PROJECT / path).exists() else path


def _linked_files(markdown: str, origin: str) -> Iterator[str]:
    """The files and folders outside `docs` that a file links to."""
    for link in _LINK.finditer(markdown):
        path = _path_in_repository(link["target"], origin)
        if path is not None and not path.startswith("docs/"):
            yield path


def _page_of(path: str) -> str:
    if (PROJECT / path).is_dir():
        return _folder_page(path)
    return _notebook_page(path) if path.endswith(".ipynb") else _file_page(path)


def _notebook_page(path: str) -> str:
    """A notebook as it is read in Jupyter: text, code, and what the code showed, plots included."""
    parts = []
    for cell in json.loads((PROJECT / path).read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(_LINK.sub(lambda link: _moved(link, path, _place(path)), source))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if "image/png" in output["data"]:
                parts.append(f"![](data:image/png;base64,{output['data']['image/png'].strip()})")
            else:
                parts.append(f"```text\n{''.join(output['data']['text/plain'])}\n```")
    return "---\nsearch:\n  exclude: true\n---\n\n" + "\n\n".join(parts) + "\n"


def _file_page(path: str) -> str:
    text = (PROJECT / path).read_text(encoding="utf-8")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{_head(path)}{fence}{_LANGUAGES.get(Path(path).suffix, 'text')}\n{text}\n{fence}\n"


def _folder_page(path: str) -> str:
    lines = (f"- [{name}]({name}{'/index' if (PROJECT / path / name).is_dir() else ''}.md)" for name in _names(path))
    return _head(path) + "\n".join(lines) + "\n"


def _head(path: str) -> str:
    return f"---\ntitle: {path}\nsearch:\n  exclude: true\n---\n\n# `{path}`\n\n"


def _names(path: str) -> list[str]:
    """What a folder of the repository holds that is text."""
    hidden = ("__pycache__", ".")
    return sorted(name for name in os.listdir(PROJECT / path) if not name.startswith(hidden))
