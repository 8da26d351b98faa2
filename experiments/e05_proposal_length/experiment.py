"""What the sequential head adds to the accepted length by depth, and what it costs of a round."""

from __future__ import annotations

import json
from statistics import mean
from typing import TYPE_CHECKING

from experiments.drafting.drafter import (
    DEPTH,
    DFLASH,
    DRAFTER,
    NEEDS,
    drafter_folder,
    dspark_drafter,
    rivals,
    size,
    why_absent,
)
from experiments.drafting.prompts import DATA, DATA_NEED, DOMAINS, where_from, workload
from experiments.reproduce import Claim, Context, Experiment, Figure, Outcome, ResultTable, Shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dspark.analysis.replay.trace import AcceptanceTrace
    from experiments.drafters.cells import Contender
    from experiments.drafting.prompts import Domain
    from experiments.e05_proposal_length.timing import Round

    Lengths = Mapping[tuple[str, str], Sequence[float]]
    """Acceptance lengths by drafter and domain; [k-1] is that of depth k."""

NUM_REQUESTS, MAX_NEW_TOKENS = 8, 32
ROUNDS, QUICK_ROUNDS = {1: 8, 16: 4, 128: 2}, {1: 2, 2: 1}
"""How many rounds are timed, by batch size."""

GAINS = {"math": 16, "code": 15, "chat": 18}
"""Figure 4: DSpark over DFlash in %, proposals of 7, by domain."""

SHARES = (0.2, 1.3)
"""What the sequential head adds to a round at batch 128, in %: the ends of what the text says."""

DSPARK, HEADLESS, FLASH = "DSpark", "without its sequential head", "DFlash"
OVER_DFLASH = {
    domain: Claim(
        what=f"gain over DFlash at depth {DEPTH}, {domain}",
        paper=paper,
        tolerance=1,
        unit="%",
        shape=Shape(above=0),
    )
    for domain, paper in GAINS.items()
}
OVER_HEADLESS = {
    domain: Claim(
        what=f"gain over the same drafter without its sequential head at depth {DEPTH}, {domain}",
        unit="%",
        shape=Shape(above=0),
    )
    for domain in GAINS
}
GROWS = {
    FLASH: Claim(
        what=f"gain over DFlash at depth {DEPTH} less that at depth 1, mean of the domains",
        unit="%",
        shape=Shape(above=0),
    ),
    HEADLESS: Claim(
        what="gain over the same drafter without its sequential head, depth "
        f"{DEPTH} less depth 1, mean of the domains",
        unit="%",
        shape=Shape(above=0),
    ),
}
SHARE = Claim(
    what="share of the sequential head in a round, batch 128",
    unit="%",
    shape=Shape(above=0, below=SHARES[1]),
    note=f"the paper says that it adds {SHARES[0]:g} to {SHARES[1]:g} %",
)
SAME_TEXT = Claim(what="domains in which another drafter changes the text", shape=Shape(below=1))


def run(context: Context) -> Outcome:
    """Records a trace a drafter and domain, replays it at every depth, and times rounds."""
    from experiments.drafters.cells import Contender
    from experiments.e05_proposal_length.figure import draw
    from experiments.e05_proposal_length.headless import without_head
    from experiments.e05_proposal_length.timing import measure_rounds

    headless = without_head(drafter_folder(context), context.folder / "headless")
    contenders = [
        dspark_drafter(context),
        Contender(name=HEADLESS, kind="block", source=str(headless)),
        *rivals(context, DFLASH),
    ]
    lengths: dict[tuple[str, str], list[float]] = {}
    texts: dict[str, set[str]] = {domain.name: set() for domain in DOMAINS}
    for contender in contenders:
        for domain in DOMAINS:
            lengths[contender.name, domain.name], text = _recorded(context, contender, domain)
            texts[domain.name].add(text)
    context.console.print("  rounds", markup=False)
    rounds = measure_rounds(
        drafter_folder(context), QUICK_ROUNDS if context.quick else ROUNDS, depth=DEPTH, quick=context.quick
    )
    gains = {
        other: {domain.name: gain_by_depth(lengths, other, domain.name) for domain in DOMAINS}
        for other in (HEADLESS, FLASH)
        if (other, DOMAINS[0].name) in lengths
    }
    draw(gains, rounds, context.folder / "gain.png")
    return Outcome(
        claims=tuple(_claims(gains, rounds, sum(len(found) > 1 for found in texts.values()))),
        figures=(
            Figure(
                file="gain.png",
                caption="Left: gain in tokens a round by depth. Right: where the time of a round goes.",
                alt="Left, a line a domain and reference drafter: gain in per cent against depths 1 to 7. "
                "Right, a bar a batch size, in shares of the round: sequential head, rest of the drafter, "
                "target and the rest.",
            ),
        ),
        tables=(_length_table(lengths), _round_table(rounds)),
        notes=(
            "Gains are in tokens a round, bonus token included: replays of fixed depths on greedy traces, "
            "which do what a live run would do. Depth k is the head of blocks of 7: a block that was trained "
            "for another length would be another drafter, and proposals of 15 need one.",
            "Without its sequential head the drafter is not DFlash: its backbone was trained with the head "
            "beside it, and leaves to it what the head can do. So that gain says how much of the drafter "
            "sits in the head, and is no stand-in for the gain over DFlash.",
            "The head's time is that of its modules, lookups and products, timed in rounds of the engine; "
            "adding its output to the logits belongs to the rest of the drafter.",
            where_from(context),
        ),
    )


def _recorded(context: Context, contender: Contender, domain: Domain) -> tuple[list[float], str]:
    """Acceptance length of every depth on a trace, and the hash of its texts."""
    from dspark.analysis.replay.files import read_trace
    from experiments.reproduce.commands import dspark

    folder = dspark(
        [
            *("record", *contender.overrides(), "verification=greedy", f"record.depth={DEPTH}"),
            *workload(context, domain, NUM_REQUESTS),
            *size(context, MAX_NEW_TOKENS),
        ],
        context.folder / f"{contender.name.replace(' ', '_')}-{domain.name}",
    )
    (row,) = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["rows"]
    return lengths_by_depth(read_trace(folder / "trace.parquet")), row["tokens_sha256"]


def lengths_by_depth(trace: AcceptanceTrace) -> list[float]:
    """Tokens a round of the depths 1 to DEPTH, by replay."""
    from dspark.analysis.replay.run import replay
    from dspark.cost.constant import ConstantCost
    from dspark.metrics.definitions import acceptance_length
    from dspark.policies.fixed import Fixed

    cost = ConstantCost(draft_s_per_token=0.0, target_s=1.0)  # a replay wants seconds; none are read
    found = []
    for depth in range(1, DEPTH + 1):
        done = replay(trace, Fixed(depth=depth), batch_size=trace.num_requests, cost=cost)
        length = acceptance_length(done.totals())
        assert length is not None, "every request drafts"
        found.append(length)
    return found


def gain_by_depth(lengths: Lengths, other: str, domain: str) -> list[float]:
    """Gain of DSpark over another drafter in %, by depth."""
    pairs = zip(lengths[DSPARK, domain], lengths[other, domain], strict=True)
    return [100 * (ours / theirs - 1) for ours, theirs in pairs]


def _claims(
    gains: Mapping[str, Mapping[str, Sequence[float]]], rounds: Mapping[int, Round], num_changed: int
) -> list[Claim]:
    absent = why_absent(DFLASH)
    claims = []
    for other, group in ((FLASH, OVER_DFLASH), (HEADLESS, OVER_HEADLESS)):
        for domain, claim in group.items():
            has = other in gains
            claims.append(claim.measured(gains[other][domain][-1]) if has else claim.left_out(absent))
    for other, claim in GROWS.items():
        if other in gains:
            growth = mean(by_depth[-1] - by_depth[0] for by_depth in gains[other].values())
            claims.append(claim.measured(growth))
        else:
            claims.append(claim.left_out(absent))
    large = max(rounds)
    note = SHARE.note if large == max(ROUNDS) else f"shortened: batch {large}"
    return [
        *claims,
        SHARE.measured(100 * rounds[large].head_s / rounds[large].wall_s, note),
        SAME_TEXT.measured(num_changed),
    ]


def _length_table(lengths: Lengths) -> ResultTable:
    return ResultTable(
        title="Tokens a round by depth",
        columns=("domain", "drafter", *map(str, range(1, DEPTH + 1))),
        rows=tuple(
            (domain, drafter, *(f"{value:.2f}" for value in values))
            for (drafter, domain), values in sorted(lengths.items(), key=lambda item: item[0][1])
        ),
    )


def _round_table(rounds: Mapping[int, Round]) -> ResultTable:
    return ResultTable(
        title=f"A round of depth {DEPTH}, in milliseconds",
        columns=("batch", "round", "target", "drafter", "of it sequential head", "head's share of the round"),
        rows=tuple(
            (
                str(batch),
                *(f"{1000 * seconds:.1f}" for seconds in (each.wall_s, each.target_s, each.draft_s)),
                *(f"{1000 * each.head_s:.2f}", f"{100 * each.head_s / each.wall_s:.2f} %"),
            )
            for batch, each in rounds.items()
        ),
    )


EXPERIMENT = Experiment(
    name="e05_proposal_length",
    title="What the sequential head adds",
    question="How much longer are accepted drafts with a sequential head, by depth, and what does it cost?",
    source="DSpark, arXiv 2607.05147, figure 4",
    minutes=2.3,
    run=run,
    claims=(
        *OVER_DFLASH.values(),
        *OVER_HEADLESS.values(),
        *GROWS.values(),
        *(SHARE, SAME_TEXT),
    ),
    needs=(*NEEDS, DATA_NEED),
    settings=(DRAFTER, DFLASH, DATA),
)
