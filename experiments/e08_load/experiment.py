"""Figures 7 and 8 of DSpark: verified length by load and the frontier, modelled and on this machine."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from experiments.reproduce import Claim, Context, Experiment, Figure, Outcome, ResultTable, Shape
from experiments.shipped.models import DRAFTER, missing

if TYPE_CHECKING:
    from experiments.e08_load.live import Live
    from experiments.e08_load.modelled import Curves

NUM_REQUESTS, QUICK_REQUESTS = 300, 20
SLACK = 0.005  # the last requests of a finite run end at other times

LIGHT = Claim(what="modelled: drafts verified a row-step at the lightest load", shape=Shape(above=4.0))
FULL = Claim(what="modelled: drafts verified a row-step at the heaviest load", shape=Shape(below=2.0))
RISES = Claim(
    what="modelled: heavier loads at which prefix_scheduler verifies more than at the one before",
    shape=Shape(below=1),
)
NEVER_BELOW = Claim(
    what="modelled: prefix_scheduler over the better of fixed 1 and fixed 5, worst load, tokens/s",
    shape=Shape(above=1 - SLACK),
)
MORE = Claim(
    what="modelled: throughput gained over fixed 1 at one speed of a user",
    paper=51,
    unit="%",
    shape=Shape(above=0),
    note="the paper's other service: 52",
)
FASTER = Claim(
    what="modelled: speed of a user gained over fixed 1 at one throughput",
    paper=72.5,
    tolerance=12.5,
    unit="%",
    shape=Shape(above=0),
    note="the paper says 60 to 85; its other service: 57 to 78",
)
STALE = Claim(
    what="modelled: stale_scheduler over prefix_scheduler, worst load, tokens/s", shape=Shape(above=0.95)
)
LIVE_FALLS = Claim(
    what="measured: drafts verified a row-step at the largest batch over those at batch 1",
    shape=Shape(below=1.0),
)
LIVE_BEST = Claim(
    what="measured: prefix_scheduler over the better of fixed 1 and fixed 5, worst batch, decode tokens/s",
    shape=Shape(above=0.95),
)
LIVE_LOSSLESS = Claim(
    what="measured: cells whose tokens are not those of plain decoding", shape=Shape(below=1)
)
MODELLED = (LIGHT, FULL, RISES, NEVER_BELOW, MORE, FASTER, STALE)
MEASURED = (LIVE_FALLS, LIVE_BEST, LIVE_LOSSLESS)
NEVER_MEET = "no load at which both reach the same"
NO_SPEED = "too short for a step without a prompt in it"


def run(context: Context) -> Outcome:
    """Simulates, then runs live where the drafter is there."""
    from experiments.e08_load.figure import draw_live, draw_modelled

    curves = _curves(context)
    draw_modelled(curves, context.folder / "modelled.png")
    figures = [
        Figure(
            file="modelled.png",
            caption="Modelled 8B target on an H100. Left: drafts verified by load. Right: the frontier; up "
            "and to the right is better.",
            alt="Two panels, a line a policy. Left, drafts verified a row-step against concurrency: level "
            "for fixed depths, falling for the two schedulers. Right, tokens per second of all against "
            "those of one user, falling from left to right.",
        )
    ]
    claims, tables = list(modelled_claims(curves)), [_modelled_table(curves)]
    why = missing(context)
    if why is None:
        from experiments.e08_load.live import measure

        live = measure(context)
        draw_live(live, context.folder / "live.png")
        figures.append(
            Figure(
                file="live.png",
                caption="This machine: drafts verified, and decode tokens/s, by batch size.",
                alt="Two panels, a line a policy, against batch size: drafts verified a row-step, and tokens "
                "per second.",
            )
        )
        claims += measured_claims(live)
        tables.append(_live_table(live))
    else:
        claims += [claim.left_out(why) for claim in MEASURED]
    return Outcome(
        claims=tuple(claims),
        figures=tuple(figures),
        tables=tuple(tables),
        notes=(
            "Modelled: Qwen3-8B on an H100 as a roofline at 60 % of the arithmetic and 70 % of the "
            "bandwidth, drafting free, requests of 500 and 120 tokens in a Poisson process, up to 512 rows; "
            "prompts are read by the same machine. The drafts' acceptance is invented, of a drafter whose "
            "confidence is right. So the shape can be the paper's, and its numbers, of DeepSeek's models, "
            "machines and users, cannot.",
            "The paper's baseline drafts one token by another drafter; ours is a fixed depth of 1 of the "
            "same. Gains are taken in the geometric middle of the speeds, or of the throughputs, that both "
            "policies reach.",
            "Measured: SmolLM2-135M-Instruct with the shipped drafter, 16 built-in prompts, 24 new "
            "tokens, greedy, one repeat, closed loop; prefix_scheduler knows the steps as `dspark profile` "
            "timed them.",
        ),
    )


def modelled_claims(curves: Curves) -> list[Claim]:
    """The claims about the simulation."""
    from experiments.e08_load import modelled
    from experiments.e08_load.frontier import frontier, matched_throughput, matched_user_speed

    ours, shallow, deep, stale = (
        curves[name] for name in (modelled.DYNAMIC, modelled.SHALLOW, modelled.DEEP, modelled.STALE)
    )
    by_load = [point.mean_verified for point in sorted(ours, key=lambda point: point.mean_concurrency)]
    rises = sum(later > earlier for earlier, later in pairwise(by_load))
    worst = min(
        (
            (a.modelled_tokens_per_s / max(b.modelled_tokens_per_s, c.modelled_tokens_per_s), a)
            for a, b, c in zip(ours, shallow, deep, strict=True)
        ),
        key=lambda pair: pair[0],
    )
    staleness = min(
        a.modelled_tokens_per_s / b.modelled_tokens_per_s for a, b in zip(stale, ours, strict=True)
    )
    fronts = frontier(ours), frontier(shallow)
    return [
        LIGHT.measured(by_load[0]),
        FULL.measured(by_load[-1]),
        RISES.measured(rises, f"of {len(by_load) - 1}"),
        NEVER_BELOW.measured(worst[0], f"at {worst[1].arrivals_per_s:.0f} requests/s; {SLACK:.1%} is slack"),
        _gain(MORE, matched_user_speed(*fronts), "tokens/s of a user"),
        _gain(FASTER, matched_throughput(*fronts), "tokens/s of all"),
        STALE.measured(staleness),
    ]


def measured_claims(live: Live) -> list[Claim]:
    """The claims about live runs."""
    from experiments.e08_load.live import DEEP, DYNAMIC, SHALLOW

    first, last = live.batch_sizes[0], live.batch_sizes[-1]
    at_first = live.verified[DYNAMIC, first]
    falls = (
        LIVE_FALLS.measured(live.verified[DYNAMIC, last] / at_first, f"batch {last} over batch {first}")
        if at_first > 0
        else LIVE_FALLS.left_out("nothing is verified at batch 1 either")
    )
    known = [
        size
        for size in live.batch_sizes
        if all((name, size) in live.tokens_per_s for name in (SHALLOW, DEEP, DYNAMIC))
    ]
    ratios = {
        size: live.tokens_per_s[DYNAMIC, size]
        / max(live.tokens_per_s[name, size] for name in (SHALLOW, DEEP))
        for size in known
    }
    worst = min(known, key=ratios.__getitem__, default=None)
    best = (
        LIVE_BEST.left_out(NO_SPEED)
        if worst is None
        else LIVE_BEST.measured(ratios[worst], f"at batch {worst}")
    )
    return [falls, best, LIVE_LOSSLESS.measured(live.num_differing)]


def _gain(claim: Claim, matched: tuple[float, float] | None, unit: str) -> Claim:
    if matched is None:
        return claim.left_out(NEVER_MEET)
    where, ratio = matched
    return claim.measured(100 * (ratio - 1), f"at {where:,.0f} {unit}; {claim.note}")


def _curves(context: Context) -> Curves:
    from experiments.e08_load.modelled import POLICIES, RATES_PER_S, acceptance_profile, curves, modelled_cost

    rates = (RATES_PER_S[0], RATES_PER_S[-1]) if context.quick else RATES_PER_S
    with context.console.status("modelled load") as status:
        return curves(
            list(POLICIES),
            rates,
            QUICK_REQUESTS if context.quick else NUM_REQUESTS,
            trace=acceptance_profile(),
            cost=modelled_cost(),
            path=context.folder / "modelled.jsonl",
            advance=lambda place: status.update(f"modelled load: {place}"),
        )


def _modelled_table(curves: Curves) -> ResultTable:
    """A row a load: concurrency and drafts verified of the scheduler, throughput of all."""
    from experiments.e08_load.modelled import DYNAMIC

    rows = []
    for place, point in enumerate(curves[DYNAMIC]):
        speeds = [f"{points[place].modelled_tokens_per_s:,.0f}" for points in curves.values()]
        users = [f"{points[place].modelled_user_tokens_per_s:.0f}" for points in curves.values()]
        both = [f"{all_of} ({one})" for all_of, one in zip(speeds, users, strict=True)]
        load = (f"{point.arrivals_per_s:.0f}", f"{point.mean_concurrency:.0f}", f"{point.mean_verified:.2f}")
        rows.append((*load, *both))
    return ResultTable(
        title="Modelled tokens/s of all, and of one user in brackets",
        columns=("requests/s", "rows", "verified", *curves),
        rows=tuple(rows),
    )


def _live_table(live: Live) -> ResultTable:
    from experiments.e08_load.live import POLICIES

    def cell(name: str, size: int) -> str:
        speed = live.tokens_per_s.get((name, size))
        return f"{'-' if speed is None else f'{speed:.1f}'} ({live.verified[name, size]:.2f})"

    return ResultTable(
        title="Measured decode tokens/s, and drafts verified a row-step in brackets",
        columns=("batch", *POLICIES),
        rows=tuple((str(size), *(cell(name, size) for name in POLICIES)) for size in live.batch_sizes),
    )


EXPERIMENT = Experiment(
    name="e08_load",
    title="Verified length and the frontier under load",
    question="Does the verified length fall with load, and is a scheduled depth ever below a fixed one?",
    source="DSpark, arXiv 2607.05147, figures 7 and 8",
    minutes=4,
    run=run,
    claims=(*MODELLED, *MEASURED),
    settings=(DRAFTER,),
)
