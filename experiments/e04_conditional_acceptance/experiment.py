"""Conditional acceptance by position and domain, for as many kinds of drafters as there are."""

from __future__ import annotations

import json
from statistics import mean
from typing import TYPE_CHECKING, Any

from experiments.drafting.drafter import (
    DEPTH,
    DFLASH,
    DRAFTER,
    EAGLE3,
    NEEDS,
    TEMPERATURE,
    dspark_drafter,
    rivals,
    size,
    why_absent,
)
from experiments.drafting.prompts import DATA, DATA_NEED, DOMAINS, where_from, workload
from experiments.e04_conditional_acceptance.published import FIRST
from experiments.reproduce import Claim, Context, Experiment, Figure, Outcome, ResultTable, Shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.drafters.cells import Contender
    from experiments.drafting.prompts import Domain

    Place = tuple[str, str]
    """A drafter and a domain."""

    Found = Mapping[Place, Sequence[float | None]]
    """Conditional acceptance by drafter and domain; [k-1] is position k's, None where none was reached."""

NUM_REQUESTS, MAX_NEW_TOKENS = 16, 56
DEEPER = 3
"""The position that is held against the first; fewer and fewer drafts reach the later ones."""

TOLERANCE = 0.02


def _difference(what: str, one: Place, other: Place) -> Claim:
    """Acceptance at position 1 in one place less that in another, which the paper finds smaller."""
    paper = None
    if one in FIRST and other in FIRST:
        paper = round(FIRST[one] - FIRST[other], 2)
    return Claim(
        what=f"acceptance at position 1, {what}",
        paper=paper,
        tolerance=0.0 if paper is None else TOLERANCE,
        shape=Shape(above=0),
    )


LEADS = {
    ((first, domain), (second, domain)): _difference(
        f"{first} less {second}, {domain}", (first, domain), (second, domain)
    )
    for first, second, domain in (
        *(("DFlash", "EAGLE-3", domain) for domain in ("math", "chat")),
        ("DSpark", "DFlash", "math"),
        *(("DSpark", "n-gram", domain.name) for domain in DOMAINS),
    )
}
MATH_FIRST = {
    ((drafter, "math"), (drafter, "chat")): _difference(
        f"{drafter}, math less chat", (drafter, "math"), (drafter, "chat")
    )
    for drafter in ("DSpark", "DFlash", "EAGLE-3")
}
DIFFERENCES = {**LEADS, **MATH_FIRST}
KEPT = {
    drafter: Claim(
        what=f"conditional acceptance at position {DEEPER} over position 1, {drafter}, mean of the domains",
        shape=shape,
        note=note,
    )
    for drafter, shape, note in (
        ("DSpark", Shape(above=0.9), "the paper's stays high along the block"),
        ("DFlash", Shape(below=1.0), "the paper's decays"),
        ("EAGLE-3", Shape(above=0.95), "the paper's stays flat or rises"),
    )
}
FLATTER = Claim(
    what=f"the same ratio of position {DEEPER} to position 1, DSpark's over DFlash's", shape=Shape(above=1.0)
)
SAME_TEXT = Claim(
    what="domains in which another drafter changes the text, greedy decoding", shape=Shape(below=1)
)
WHY_ABSENT = {"DFlash": why_absent(DFLASH), "EAGLE-3": why_absent(EAGLE3)}


def run(context: Context) -> Outcome:
    """A run a drafter and domain; those that have ended are not run again."""
    from experiments.drafters.cells import Contender
    from experiments.drafters.chart import draw

    contenders = [
        dspark_drafter(context),
        *rivals(context, DFLASH, EAGLE3),
        Contender(name="n-gram", kind="ngram"),
    ]
    rows = []
    for contender in contenders:
        for domain in DOMAINS:
            row = _measured(context, contender, domain)
            rows.append({**row, "drafter": contender.name, "prompts": domain.name})
    draw(rows, context.folder / "conditional.png", depth=DEPTH)
    found = {(row["drafter"], row["prompts"]): row["conditional_at"] for row in rows}
    return Outcome(
        claims=(*_claims(found), _same_text(rows)),
        figures=(
            Figure(
                file="conditional.png",
                caption="How often the draft at a position is accepted, given that all before it were.",
                alt="A panel a domain with a line a drafter: conditional acceptance against the position in "
                "the draft. The legend has the tokens a round, rounds without a draft among them.",
            ),
        ),
        tables=(_table(rows),),
        notes=(
            f"Every drafter drafts {DEPTH} tokens in every round, and all are verified. The paper's target "
            "is Qwen3-4B and its drafters have 5 layers; ours are for a model of 135M parameters, so its "
            "numbers are held against ours as leads of one drafter over another; levels are in the table.",
            "Fewer drafts reach a later position: at position k the number is that of rounds times the "
            "survival up to k - 1. Of n-gram drafts, only rounds count in which the lookup found something.",
            where_from(context),
        ),
    )


def _measured(context: Context, contender: Contender, domain: Domain) -> dict[str, Any]:
    """The summary row of a run."""
    from experiments.drafters.rounds import rounds_of
    from experiments.reproduce.commands import dspark

    folder = dspark(
        [
            *("run", *contender.overrides(), "policy=fixed", f"policy.depth={DEPTH}"),
            *("verification=rejection", f"sampling.temperature={context.settings[TEMPERATURE.name]}"),
            *workload(context, domain, NUM_REQUESTS),
            *size(context, MAX_NEW_TOKENS),
        ],
        context.folder / f"{contender.name}-{domain.name}",
    )
    (row,) = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["rows"]
    return {**row, **rounds_of(folder)}


def _claims(found: Found) -> list[Claim]:
    """All claims but that of the text, in their order."""
    drafters = {drafter for drafter, _ in found}
    ratios = {drafter: _kept(found, drafter) for drafter in KEPT if drafter in drafters}
    claims = []
    for (one, other), claim in DIFFERENCES.items():
        absent = _absent(drafters, one[0], other[0])
        if absent is not None:
            claims.append(claim.left_out(absent))
        else:
            claims.append(claim.measured(_first(found[one]) - _first(found[other])))
    for drafter, claim in KEPT.items():
        claims.append(_of(claim, ratios.get(drafter), _absent(drafters, drafter)))
    ours, theirs = ratios.get("DSpark"), ratios.get("DFlash")
    flatter = ours / theirs if ours is not None and theirs else None
    return [*claims, _of(FLATTER, flatter, _absent(drafters, "DFlash"))]


def _of(claim: Claim, value: float | None, absent: str | None) -> Claim:
    if value is not None:
        return claim.measured(value)
    return claim.left_out(absent or f"too few drafts reach position {DEEPER}")


def _absent(drafters: set[str], *wanted: str) -> str | None:
    """Why the first of the wanted drafters that was not run was not."""
    return next((WHY_ABSENT[drafter] for drafter in wanted if drafter not in drafters), None)


def _first(values: Sequence[float | None]) -> float:
    """Acceptance at position 1: 0 where nothing was drafted, as by a lookup that finds nothing."""
    return (values[0] or 0.0) if values else 0.0


def _kept(found: Found, drafter: str) -> float | None:
    """Mean over domains of conditional acceptance at DEEPER over that at 1; None where one has none."""
    ratios = []
    for domain in DOMAINS:
        values = found[drafter, domain.name]
        deep = values[DEEPER - 1] if len(values) >= DEEPER else None
        if deep is None or not values[0]:
            return None
        ratios.append(deep / values[0])
    return mean(ratios)


def _same_text(rows: Sequence[Mapping[str, Any]]) -> Claim:
    """How many domains have several texts, where drafters must not change them."""
    if any(row["temperature"] > 0 for row in rows):
        return SAME_TEXT.left_out(
            f"sampled text differs with the drafts under rejection: give {TEMPERATURE.name}=0"
        )
    texts = {
        domain.name: {r["tokens_sha256"] for r in rows if r["prompts"] == domain.name} for domain in DOMAINS
    }
    return SAME_TEXT.measured(sum(len(hashes) > 1 for hashes in texts.values()))


def _table(rows: Sequence[Mapping[str, Any]]) -> ResultTable:
    return ResultTable(
        title="Conditional acceptance by position",
        columns=("domain", "drafter", "paper, 1", *map(str, range(1, DEPTH + 1)), "tokens a round"),
        rows=tuple(
            (
                *(row["prompts"], row["drafter"]),
                _shown(FIRST.get((row["drafter"], row["prompts"]))),
                *(
                    _shown(row["conditional_at"][k] if k < len(row["conditional_at"]) else None)
                    for k in range(DEPTH)
                ),
                _shown(row["acceptance_length"]),
            )
            for row in rows
        ),
    )


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


EXPERIMENT = Experiment(
    name="e04_conditional_acceptance",
    title="Acceptance along a draft",
    question="How often is a draft accepted at each position, given that those before it were, by kind of "
    "drafter and of prompts?",
    source="DSpark, arXiv 2607.05147, figure 2",
    minutes=3.3,
    run=run,
    claims=(*DIFFERENCES.values(), *KEPT.values(), FLATTER, SAME_TEXT),
    needs=(*NEEDS, DATA_NEED),
    settings=(DRAFTER, DFLASH, EAGLE3, DATA, TEMPERATURE),
)
