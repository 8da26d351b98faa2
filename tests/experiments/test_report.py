"""The report is well-formed, loads nothing, and has everything."""

from __future__ import annotations

import base64
from html.parser import HTMLParser
from pathlib import Path

import pytest

from experiments.reproduce import Need
from experiments.reproduce.report import write_report
from tests.experiments.stand_ins import EQUAL, LARGER, SVG, experiment, fails, run, works

VOID = {"meta", "link", "br", "img"}
LOADS = {"src", "srcset", "href", "data", "poster", "action", "background"}


class Page(HTMLParser):
    """Checks nesting while it reads, and keeps texts, loads and alternative texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.loads: list[tuple[str, str]] = []
        self.alts: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        assert len(values) == len(attrs), f"an attribute of {tag} occurs twice"
        self.tags.add(tag)
        self.loads += [(tag, values[name] or "") for name in LOADS & values.keys()]
        if tag == "img":
            self.alts.append(values["alt"] or "")
        if "id" in values:
            self.ids.append(values["id"] or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    out = tmp_path_factory.mktemp("out")
    results = run(
        out,
        experiment("e90_works", works),
        experiment("e91_fails", fails),
        experiment("e92_lacks", works, Need(what="a model", missing=lambda _: "no <model> here")),
    )
    return Page(write_report(out / "report.html", results, out).read_text(encoding="utf-8"))


def test_nothing_is_loaded_from_elsewhere_and_nothing_runs(page: Page) -> None:
    assert not page.tags & {"script", "iframe", "object", "embed", "form"}
    for tag, target in page.loads:
        assert target.startswith("#" if tag == "a" else "data:"), (tag, target[:80])
    (style,) = [text for text in page.texts if ":root" in text]
    assert "url(" not in style
    assert "@import" not in style


def test_every_experiment_has_its_place_and_a_link_to_it(page: Page) -> None:
    names = ["e90_works", "e91_fails", "e92_lacks"]
    assert page.ids == names
    assert [target for tag, target in page.loads if tag == "a"] == [f"#{name}" for name in names]


def test_every_claim_is_there_with_its_numbers_and_status(page: Page) -> None:
    assert page.text.count(EQUAL.what) == page.text.count(LARGER.what) == 3
    # number, ours, error, rule, status
    assert f"{EQUAL.what} [tokens/s] by hand 2 2.05 0.05 ± 0.1 reproduced" in page.text
    assert f"{LARGER.what} – 1.5 – shape > 1 shape only" in page.text
    assert f"{EQUAL.what} [tokens/s] no <model> here 2 – – ± 0.1 not run here" in page.text
    assert "1 reproduced, 1 shape only, 4 not run here." in page.text


def test_pictures_are_inside_with_words_for_them(page: Page) -> None:
    (picture,) = [target for tag, target in page.loads if tag == "img"]
    kind, _, content = picture.partition(";base64,")
    assert (kind, base64.b64decode(content).decode()) == ("data:image/svg+xml", SVG)
    assert page.alts == ["nothing but a dot"]
    assert "A dot." in page.text


def test_notes_tables_failures_and_provenance_are_there(page: Page) -> None:
    for text in (
        *("A note with <angle> brackets.", "One row", "<2>", "RuntimeError: a wheel <came> off"),
        *("Traceback (most recent call last)", "Not run here: no <model> here", "dspark reproduce all"),
        *("torch", "threads", "nobody, 1999"),
    ):
        assert text in page.text, text


def test_a_shortened_run_says_so(tmp_path: Path, page: Page) -> None:
    results = run(tmp_path, experiment("e90_works", works), quick=True)
    short = Page(write_report(tmp_path / "report.html", results, tmp_path).read_text(encoding="utf-8"))
    assert "Its numbers are no results." in short.text
    assert "Its numbers are no results." not in page.text
