"""A threshold on each slot's confidence, from none to strict: what is verified, and how much is right."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from experiments.drafting.drafter import DEPTH, DRAFTER, NEEDS, dspark_drafter, size
from experiments.drafting.prompts import DATA, DATA_NEED, DOMAINS, where_from, workload
from experiments.reproduce import Claim, Context, Experiment, Figure, Outcome, ResultTable, Shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dspark.analysis.replay.trace import AcceptanceTrace
    from experiments.drafting.prompts import Domain
    from experiments.e06_threshold.sweep import Point

    Found = Mapping[str, Sequence[Point]]
    """By domain, a point a threshold in their order."""

THRESHOLDS = tuple(step / 10 for step in range(10))
NUM_REQUESTS, MAX_NEW_TOKENS = 12, 56
LIVE_THRESHOLD, LIVE_DOMAIN, LIVE_BATCH = 0.5, DOMAINS[0], 4

RATES = {"math": (76.9, 92.5), "code": (67.6, 92.0), "chat": (45.7, 95.7)}
"""Figure 5: acceptance rate in % without a threshold and with one of about 0.9, by domain."""

TOLERANCE = 2.0

STRICT = {
    domain: Claim(
        what=f"acceptance rate at threshold {THRESHOLDS[-1]:g}, {domain}",
        paper=strict,
        tolerance=TOLERANCE,
        unit="%",
        shape=Shape(above=90),
    )
    for domain, (_, strict) in RATES.items()
}
RISE = {
    domain: Claim(
        what=f"acceptance rate at threshold {THRESHOLDS[-1]:g} less that at 0, {domain}",
        paper=round(strict - plain, 1),
        tolerance=TOLERANCE,
        unit="%",
        shape=Shape(above=0),
    )
    for domain, (plain, strict) in RATES.items()
}
FALL = Claim(
    what="largest fall of an acceptance rate from a threshold to the next, any domain",
    unit="%",
    shape=Shape(below=2),
    note="the paper's rises all the way; few tokens are left at strict thresholds",
)
SHRINKS = Claim(
    what=f"verified tokens a round at threshold {THRESHOLDS[-1]:g} over those at 0, worst domain",
    shape=Shape(below=1),
)
LIVE = Claim(
    what=f"row-steps of a live run at threshold {LIVE_THRESHOLD:g} that differ from the replay, "
    f"{LIVE_DOMAIN.name}",
    shape=Shape(below=1),
)


def run(context: Context) -> Outcome:
    """Records a trace a domain, replays every threshold on it, and runs one of them live."""
    from experiments.e06_threshold.figure import draw
    from experiments.e06_threshold.sweep import num_differing, swept

    found: dict[str, list[Point]] = {}
    differing = num_live = 0
    for domain in DOMAINS:
        trace = _recorded(context, domain)
        found[domain.name] = [swept(trace, threshold, DEPTH) for threshold in THRESHOLDS]
        if domain is LIVE_DOMAIN:
            differing, num_live = num_differing(
                _live(context), trace, LIVE_THRESHOLD, DEPTH, batch_size=LIVE_BATCH
            )
    draw(found, RATES, context.folder / "threshold.png")
    return Outcome(
        claims=tuple(_claims(found, differing, num_live)),
        figures=(
            Figure(
                file="threshold.png",
                caption="By threshold: acceptance rate (crosses are the paper's ends), verified tokens a "
                "round, tokens a round.",
                alt="Three panels with a line a domain against the threshold: the share of verified tokens "
                "that are accepted, how many are verified a round, and how many tokens come out of a round.",
            ),
        ),
        tables=(_table(found),),
        notes=(
            f"A draft ends before its first token whose confidence is below the threshold, after {DEPTH} at "
            "the latest; the rate is that of accepted among verified tokens. Greedy decoding, where the "
            "paper samples at temperature 1 from Qwen3-4B with a drafter of 5 layers. Where ours "
            "guesses less, its rate without a threshold is lower, and there is more to rise.",
            "All thresholds are replays of one recording a domain. One of them was run live, in batches of "
            f"{LIVE_BATCH}, and compared row-step by row-step: planned, drafted, verified, accepted and "
            "emitted tokens, and contexts.",
            where_from(context),
        ),
    )


def _recorded(context: Context, domain: Domain) -> AcceptanceTrace:
    from dspark.analysis.replay.files import read_trace
    from experiments.reproduce.commands import dspark

    folder = dspark(
        [*("record", f"record.depth={DEPTH}"), *_common(context, domain)], context.folder / domain.name
    )
    return read_trace(folder / "trace.parquet")


def _live(context: Context) -> Path:
    """The folder of a live run under one threshold."""
    from experiments.reproduce.commands import dspark

    return dspark(
        [
            *("run", "policy=confidence", f"policy.depth={DEPTH}", f"policy.threshold={LIVE_THRESHOLD}"),
            *("policy.signal=confidence", "policy.stop=before", f"engine.max_batch_size={LIVE_BATCH}"),
            *_common(context, LIVE_DOMAIN),
        ],
        context.folder / "live",
    )


def _common(context: Context, domain: Domain) -> list[str]:
    return [
        *(*dspark_drafter(context).overrides(), "verification=greedy"),
        *workload(context, domain, NUM_REQUESTS),
        *size(context, MAX_NEW_TOKENS),
    ]


def _claims(found: Found, differing: int, num_live: int) -> list[Claim]:
    nothing = "no token passes the threshold"
    claims = []
    for domain, claim in STRICT.items():
        rate = found[domain][-1].rate
        claims.append(claim.left_out(nothing) if rate is None else claim.measured(100 * rate))
    for domain, claim in RISE.items():
        rate, plain = found[domain][-1].rate, found[domain][0].rate
        if rate is None or plain is None:
            claims.append(claim.left_out(nothing))
        else:
            claims.append(claim.measured(100 * (rate - plain)))
    shrinks = max(points[-1].verified / points[0].verified for points in found.values())
    return [
        *claims,
        FALL.measured(100 * max(largest_fall(points) for points in found.values())),
        SHRINKS.measured(shrinks),
        LIVE.measured(differing, f"of {num_live}"),
    ]


def largest_fall(points: Sequence[Point]) -> float:
    """The largest fall of the rate from a point to the next, 0 if it never falls; without a rate none is."""
    rates = [point.rate for point in points if point.rate is not None]
    return max((before - after for before, after in pairwise(rates) if after < before), default=0.0)


def _table(found: Found) -> ResultTable:
    return ResultTable(
        title="By threshold",
        columns=("domain", "threshold", "acceptance rate", "verified a round", "tokens a round"),
        rows=tuple(
            (
                *(domain, f"{point.threshold:g}", "-" if point.rate is None else f"{100 * point.rate:.1f} %"),
                *(f"{point.verified:.2f}", f"{point.length:.2f}"),
            )
            for domain, points in found.items()
            for point in points
        ),
    )


EXPERIMENT = Experiment(
    name="e06_threshold",
    title="A threshold on confidence",
    question="Does a threshold on each slot's confidence leave the tokens that will be accepted?",
    source="DSpark, arXiv 2607.05147, figure 5",
    minutes=2.1,
    run=run,
    claims=(*STRICT.values(), *RISE.values(), FALL, SHRINKS, LIVE),
    needs=(*NEEDS, DATA_NEED),
    settings=(DRAFTER, DATA),
)
