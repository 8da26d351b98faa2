"""The documentation site: every page can be reached, every link and anchor leads somewhere, and it builds."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from tests.documents import DOCUMENTS, REPO

SITE = yaml.safe_load((REPO / "mkdocs.yml").read_text())
API = sorted((REPO / "docs" / "api").glob("*.md"))
NOTEBOOKS = sorted((REPO / "notebooks").glob("*.ipynb"))
FAQ = REPO / "docs" / "faq.md"


def _nav(items: list[dict[str, Any]]) -> Iterator[str]:
    for item in items:
        for entry in item.values():
            yield from [entry] if isinstance(entry, str) else _nav(entry)


def _prose(path: Path) -> str:
    """The text of a document or notebook without its code."""
    if path.suffix == ".ipynb":
        cells = nbformat.read(path, as_version=4).cells
        return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)


def _host_anchor(heading: str) -> str:
    """As code hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _site_anchor(heading: str) -> str:
    """As Python-Markdown makes it, which the site is built with."""
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def test_the_nav_has_every_page_once_and_no_other() -> None:
    pages = list(_nav(SITE["nav"]))
    assert len(pages) == len(set(pages))
    assert SITE["not_in_nav"].split() == ["/experiments/*/"]
    expected = {path.relative_to(REPO).as_posix() for path in DOCUMENTS}
    assert set(pages) == {page for page in expected if not re.match(r"experiments/.*/", page)}


@pytest.mark.parametrize("path", [*DOCUMENTS, *NOTEBOOKS], ids=lambda path: path.relative_to(REPO).as_posix())
def test_links_and_anchors_lead_somewhere_in_a_checkout_and_on_the_site(path: Path) -> None:
    links = re.findall(r"\]\(([^):#]*)(?:#([^)]*))?\)", _prose(path))
    for link, anchor in links:
        there = (path.parent / link).resolve() if link else path
        assert there.is_file(), f"{link} is no file, and the site has no other pages"
        if anchor:
            headings = [
                heading.replace("`", "")
                for heading in re.findall(r"^#+ (.+)$", _prose(there), flags=re.MULTILINE)
            ]
            assert anchor in {_host_anchor(heading) for heading in headings}, f"{link}#{anchor}"
            assert anchor in {_site_anchor(heading) for heading in headings}, f"{link}#{anchor}"


@pytest.mark.parametrize("path", API, ids=lambda path: path.stem)
def test_api_pages_name_modules_and_members_that_exist(path: Path) -> None:
    text = path.read_text()
    modules = re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE)
    assert modules
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []
    chosen = re.findall(r"^::: (\S+)\n    options:\n      members: \[(.*)\]$", text, flags=re.MULTILINE)
    for module, members in chosen:
        missing = [m for m in members.split(", ") if not hasattr(importlib.import_module(module), m)]
        assert missing == []


def test_every_question_has_an_answer_and_a_public_source() -> None:
    _, *answers = re.split(r"^## ", FAQ.read_text(), flags=re.MULTILINE)
    assert len(answers) > 10
    for answer in answers:
        question, body = answer.split("\n", 1)
        assert question.endswith("?"), question
        text, found, sources = re.split(r"\n(Sources?): ", body)
        links = re.findall(r"\[[^]]+\]\(https://[^)]+\)", sources)
        assert found == ("Sources" if len(links) > 1 else "Source"), question
        assert len(text.split()) > 30, question
        for where, number in re.findall(
            r"\[(?:vLLM|SGLang|TensorRT-LLM|llama\.cpp|transformers|DeepSpec) (\d+)\]\(\S+/(\d+)\)", sources
        ):
            assert where == number, question


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    for tool in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(tool, reason="the site's tools are installed by `make docs`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command,
        cwd=REPO,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    for page in _nav(SITE["nav"]):
        name = page.removesuffix(".md").removesuffix("README")
        html = (tmp_path / "site" / name / "index.html").read_text()
        assert "<h1" in html, page
        loaded = re.findall(
            r"<(?:script|img|link rel=\"stylesheet\")[^>]*(?:src|href)=\"(https?:[^\"]*)", html
        )
        assert loaded == [], page
        assert not re.search(r":(?:class|func|meth):", html), page
    policies = (tmp_path / "site/docs/api/policies/index.html").read_text()
    for name in ("dspark.policies.base.Policy.plan", "dspark.policies.PrefixScheduler"):
        assert f'id="{name}"' in policies
