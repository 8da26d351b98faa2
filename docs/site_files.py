"""A hook of mkdocs: the site holds the repository's documents at the paths they have in it.

So a link works alike in a checkout, on a code host and on the site, and no text exists twice.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md", "experiments/**/README.md")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")  # without a scheme, so to a file
_ROLE = re.compile(r":(?:class|func|meth):(?=<code>)")  # Sphinx's words for what a name is, in docstrings


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages, and the pictures and other files that they link to."""
    root = Path(config.config_file_path).resolve().parent
    for file in [file for file in files if file.src_dir == config.docs_dir]:
        files.remove(file)
    for path in site_files(root):
        name = path.relative_to(root).as_posix()
        files.append(File(name, str(root), config.site_dir, config.use_directory_urls))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page without roles in front of names."""
    return _ROLE.sub("", html)


def site_files(root: Path) -> list[Path]:
    """Every file of the site that is not made by it, sorted."""
    pages = {path for pattern in PAGES for path in root.glob(pattern) if ".venv" not in path.parts}
    linked = {(page.parent / link).resolve() for page in pages for link in _LINK.findall(page.read_text())}
    return sorted(pages | {path for path in linked if path.is_file() and path.is_relative_to(root)})
