"""The rendered site: links to files of the repository lead to pages, and nothing is loaded from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import site_pages
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import get_files
from mkdocs.structure.pages import Page


@pytest.fixture
def config(tmp_path: Path) -> MkDocsConfig:
    (tmp_path / "docs").mkdir()
    (tmp_path / "site").mkdir()
    places = {"docs_dir": str(tmp_path / "docs"), "site_dir": str(tmp_path / "site")}
    return load_config(str(site_pages.PROJECT / "mkdocs.yml"), plugins=[], **places)


def _shown(config: MkDocsConfig, place: str, markdown: str) -> tuple[str, dict[str, str]]:
    """A page as the site has it, and the pages below `source/` that it brings with it."""
    (path := Path(config.docs_dir, place)).parent.mkdir(exist_ok=True)
    path.write_text(markdown, encoding="utf-8")
    files = config.plugins.on_files(get_files(config), config=config)
    file = files.get_file_from_path(place)
    assert file is not None
    moved = config.plugins.on_page_markdown(markdown, page=Page(None, file, config), config=config, files=files)
    return moved, {each.src_uri: each.content_string for each in files if each.src_uri.startswith("source/")}


@pytest.mark.parametrize(
    ("written", "moved"),
    [
        ("[x](../../src/headgate/errors.py)", "[x](../source/src/headgate/errors.py.md)"),
        ("[x](../../CONTRIBUTING.md#tests)", "[x](../contributing.md#tests)"),
        ("[x](../tour.md#1)", "[x](../tour.md#1)"),
        ("[x](../../src/headgate/nowhere.py)", "[x](../../src/headgate/nowhere.py)"),
        ("[x](https://example.com/a)", "[x](https://example.com/a)"),
        ("<!-- Written by a tool. -->\n# Title", "# Title"),
    ],
)
def test_page_is_shown_with_links_to_pages_of_files_and_its_heading_first(
    config: MkDocsConfig, written: str, moved: str
) -> None:
    shown, _ = _shown(config, "howto/page.md", written)
    assert shown == moved


def test_page_of_the_root_is_there_and_links_into_the_documentation(config: MkDocsConfig) -> None:
    files = config.plugins.on_files(get_files(config), config=config)
    page = Page(None, files.src_uris["contributing.md"], config)
    text = (site_pages.PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert page.file.content_string == text
    shown = config.plugins.on_page_markdown(text, page=page, config=config, files=files)
    assert "](docs/tour.md)" in text and "](tour.md)" in shown and "](docs/" not in shown


def test_linked_file_is_shown_whole_and_a_linked_folder_with_its_files(config: MkDocsConfig) -> None:
    _, pages = _shown(config, "page.md", "[x](../tools/site_pages.py), [y](../examples/demos)")
    assert Path(site_pages.__file__).read_text(encoding="utf-8") in pages["source/tools/site_pages.py.md"]
    demos = sorted(path.name for path in (site_pages.PROJECT / "examples" / "demos").glob("*.py"))
    assert all(f"[{name}]({name}.md)" in pages["source/examples/demos/index.md"] for name in demos)
    assert all(f"source/examples/demos/{name}.md" in pages for name in demos)


def test_notebook_is_shown_with_its_plots_and_its_links_lead_to_pages(config: MkDocsConfig) -> None:
    _, pages = _shown(config, "page.md", "[x](../examples/notebooks/orders.ipynb)")
    shown = pages["source/examples/notebooks/orders.ipynb.md"]
    assert "```python\nimport tempfile" in shown and "![](data:image/png;base64," in shown
    assert "](../../../howto/back-test-rules.md)" in shown


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page.html", '<script src="https://example.com/x.js"></script>'),
        ("page.html", '<link rel="stylesheet" href="//example.com/x.css">'),
        ("page.html", '<img srcset="https://example.com/x.png 2x">'),
        ("style.css", "a { background: url('https://example.com/x.png') }"),
        ("style.css", '@import "https://example.com/x.css";'),
    ],
)
def test_page_that_loads_from_elsewhere_is_refused(config: MkDocsConfig, name: str, text: str) -> None:
    Path(config.site_dir, name).write_text(text, encoding="utf-8")
    with pytest.raises(PluginError, match=rf"{name}: (https:)?//example\.com"):
        site_pages.on_post_build(config)


def test_page_that_links_elsewhere_is_not_refused(config: MkDocsConfig) -> None:
    Path(config.site_dir, "page.html").write_text(
        '<a href="https://example.com">x</a><img src="x.png">', encoding="utf-8"
    )
    site_pages.on_post_build(config)
