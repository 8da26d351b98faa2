"""Whether the cells of a comparison gave the same tokens, and where they first parted if not."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.analysis.divergence import Divergence
    from dspark.cli.compare import Cell
    from dspark.cli.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What a comparison says about its tokens."""

    lines: list[str]  # for people
    record: dict[str, Any]  # for summary.json
    is_broken: bool = field(default=False)  # a promise was not kept


def compare_tokens(session: Session, cells: Sequence[Cell], baseline: str | None) -> Agreement:
    """The agreement of all cells with the baseline at the smallest batch size.

    Under greedy decoding or coupled verification a request's tokens do not depend on policy or
    batch, up to rounding in ``fast`` numerics and bit for bit in ``invariant``. Other rules draw
    anew whenever depths differ, so their samples may differ and nothing is concluded from it.
    """
    rows = session.run_dir.finished_cells()
    reference = _reference(cells, baseline)
    ordered = [reference, *(cell for cell in cells if cell != reference)]
    hashes = {cell: rows[cell.name]["tokens_sha256"] for cell in ordered}
    same = len(set(hashes.values())) == 1
    rule, temperature = session.prepared.verification, session.prepared.config.sampling.temperature
    record: dict[str, Any] = {"identical": same, "reference": reference.name, "divergences": []}
    if same:
        line = f"identical tokens in all {len(cells)} cells (sha256 {hashes[reference]})"
        return Agreement(lines=[line], record=record)
    if not rule.lossless:
        line = f"verification {rule.name} accepts by chosen rates: the text is not the target's, and differs"
        return Agreement(lines=[line], record=record)
    if temperature > 0 and not rule.unbiased_for_class_d:
        line = (
            f"tokens differ between cells, as they may: at temperature {temperature} verification {rule.name}"
            " draws other samples of the same law when depths differ; verification=coupled draws the same"
        )
        return Agreement(lines=[line], record=record)
    differing = [cell for cell in ordered if hashes[cell] != hashes[reference]]
    found = {cell.name: _divergences(session, reference, cell) for cell in differing}
    record["divergences"] = [
        {"cell": name, **asdict(divergence)} for name, each in found.items() for divergence in each
    ]
    is_broken = session.target.numerics == "invariant"
    return Agreement(
        lines=[_headline(len(cells), len(found), reference, is_broken=is_broken), *_listed(found)],
        record=record,
        is_broken=is_broken,
    )


def _reference(cells: Sequence[Cell], baseline: str | None) -> Cell:
    """The first repeat of the baseline, or else of the first policy, at the smallest batch size."""
    smallest = min(cell.batch_size for cell in cells)
    policy = baseline or cells[0].policy
    return next(
        cell for cell in cells if (cell.policy, cell.batch_size, cell.repeat) == (policy, smallest, 0)
    )


def _divergences(session: Session, reference: Cell, other: Cell) -> list[Divergence]:
    from dspark.analysis.divergence import first_divergences

    requests = session.prepared.requests
    return first_divergences(
        session.target,
        session.run_dir.completions(reference.name, requests),
        session.run_dir.completions(other.name, requests),
        requests=requests,
        seed=session.prepared.config.engine.seed,
    )


def _headline(num_cells: int, num_differing: int, reference: Cell, *, is_broken: bool) -> str:
    if is_broken:
        return (
            f"BROKEN: numerics=invariant promises the same tokens everywhere, and {num_differing} of "
            f"{num_cells} cells differ from {reference.group}; first divergences:"
        )
    return (
        f"{num_cells - num_differing} of {num_cells} cells have the tokens of {reference.group}; the first "
        "divergence of each request elsewhere (a margin near 1e-4 or below is a tie that rounding decided):"
    )


def _listed(found: dict[str, list[Divergence]]) -> list[str]:
    """One line a divergence, with all cells that have it."""
    where: dict[Divergence, list[str]] = {}
    for cell, divergences in found.items():
        for divergence in divergences:
            where.setdefault(divergence, []).append(cell)
    return [
        f"  request {d.request_id}, output token {d.position}: {_token(d.reference_token)} became "
        f"{_token(d.other_token)}, logit margin {_margin(d.logit_margin)}, in {'; '.join(cells)}"
        for d, cells in where.items()
    ]


def _token(token: int | None) -> str:
    return "the end" if token is None else str(token)


def _margin(margin: float | None) -> str:
    return "unknown" if margin is None else f"{margin:.2g}"
