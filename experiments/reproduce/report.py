"""One HTML file with everything in it: no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from experiments.reproduce.claims import Claim, Status, counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.reproduce.result import Result

TEMPLATE = "report.html.j2"
KINDS = {".png": "image/png", ".svg": "image/svg+xml"}


def write_report(path: Path, results: Sequence[Result], figures: Path) -> Path:
    """``path``, which then holds the page, in one stroke.

    Args:
        path: the HTML file.
        results: a section each, in this order.
        figures: the folder in which each result has a folder of its name with its pictures.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "slug": slug, "expected": expected, "seconds": seconds}
    page = environment.get_template(TEMPLATE).render(
        results=results,
        statuses=list(Status),
        counted={result.name: counts(result.claims) for result in results},
        total=counts(claim for result in results for claim in result.claims),
        inline=lambda result, figure: inline(figures / result.name / figure.file),
        is_quick=any(result.quick for result in results),
    )
    partial = path.with_suffix(".partial")
    partial.write_text(page, encoding="utf-8")
    os.replace(partial, path)
    return path


def inline(file: Path) -> str:
    """The picture as a data URI."""
    content = base64.b64encode(file.read_bytes()).decode("ascii")
    return f"data:{KINDS[file.suffix]};base64,{content}"


def number(value: float | None) -> str:
    """Five significant digits; a dash for none."""
    return "–" if value is None else f"{value:.5g}"


def expected(claim: Claim) -> str:
    """What counts as reproduced and what as shape only, in short."""
    parts = [] if claim.paper is None else [f"± {claim.tolerance:.2g}"]
    parts += [] if claim.shape is None else [f"shape {claim.shape}"]
    return ", ".join(parts)


def slug(text: str) -> str:
    """A status as the name of a style."""
    return text.replace(" ", "-")


def seconds(value: float) -> str:
    """Seconds below two minutes, else minutes."""
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"
