"""What speculation does to the work and to the time of an output token, at small and at large batches."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from experiments.drafting.drafter import DRAFTER, NEEDS, dspark_drafter, size
from experiments.reproduce import Claim, Context, Experiment, Figure, Outcome, ResultTable, Shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Rows = Mapping[tuple[str, int], Mapping[str, Any]]
    """Summary rows by policy and batch size."""

BATCH_SIZES, QUICK_BATCH_SIZES = (1, 4, 16), (1, 2)
NUM_REQUESTS, MAX_NEW_TOKENS = 16, 32
QUICK_REQUESTS = 6
PLAIN, *FIXED = POLICIES = ("fixed 0", "fixed 2", "fixed 4", "fixed 7")
DEEP = FIXED[-1]
DYNAMIC = "confidence 0.5 signal=confidence"
DYNAMIC_ENTRY = "confidence threshold=0.5 signal=confidence"

WORK, BYTES, RATE = "model_flops_per_output_token", "bytes_per_output_token", "tokens_per_s"

MORE_WORK = Claim(
    what="target FLOPs an output token, fastest fixed depth over plain decoding, batch 1",
    shape=Shape(above=1.0),
)
LESS_TIME = Claim(
    what="seconds an output token, fastest fixed depth over plain decoding, batch 1", shape=Shape(below=1.0)
)
FEWER_BYTES = Claim(
    what="bytes moved an output token, fastest fixed depth over plain decoding, batch 1",
    shape=Shape(below=1.0),
)
LOADED_WORK = Claim(
    what="target FLOPs an output token, depth 7 over plain decoding, batch 16", shape=Shape(above=1.0)
)
LOADED_TIME = Claim(
    what="seconds an output token, depth 7 over plain decoding, batch 16", shape=Shape(above=1.0)
)
SAME_WORK = Claim(
    what="target FLOPs an output token of depth 7 over plain decoding, batch 16 over batch 1",
    shape=Shape(above=0.99, below=1.01),
)
DYNAMIC_WORK = Claim(
    what="target FLOPs an output token, depth by confidence over depth 7, worst batch size",
    shape=Shape(below=1.0),
)
DYNAMIC_TIME = Claim(
    what="seconds an output token, depth by confidence over depth 7, worst batch size", shape=Shape(below=1.0)
)
LOSSLESS = Claim(what="cells whose tokens are not those of plain decoding", shape=Shape(below=1))
CLAIMS = (
    *(MORE_WORK, LESS_TIME, FEWER_BYTES, LOADED_WORK, LOADED_TIME, SAME_WORK, DYNAMIC_WORK, DYNAMIC_TIME),
    LOSSLESS,
)


def run(context: Context) -> Outcome:
    """One comparison; where it was stopped, it goes on."""
    from experiments.e02_more_work.figure import draw
    from experiments.reproduce.commands import dspark

    sizes = QUICK_BATCH_SIZES if context.quick else BATCH_SIZES
    folder = dspark(
        [
            *("compare", *dspark_drafter(context).overrides(), "verification=greedy"),
            f"compare.policies=[{','.join(POLICIES)},'{DYNAMIC_ENTRY}']",
            f"compare.batch_sizes={list(sizes)}",
            f"workload.num_requests={QUICK_REQUESTS if context.quick else NUM_REQUESTS}",
            *size(context, MAX_NEW_TOKENS),
        ],
        context.folder / "compare",
    )
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    rows: Rows = {(row["policy"], row["batch_size"]): row for row in summary["rows"]}
    draw(
        {
            batch: {
                policy: (over(rows, WORK, policy, batch), slower(rows, policy, batch))
                for policy in (*FIXED, DYNAMIC)
            }
            for batch in sizes
        },
        context.folder / "work_and_time.png",
        dynamic=DYNAMIC,
    )
    differing = len({divergence["cell"] for divergence in summary["tokens"]["divergences"]})
    return Outcome(
        claims=(*_claims(rows, sizes), LOSSLESS.measured(differing)),
        figures=(
            Figure(
                file="work_and_time.png",
                caption="Target FLOPs and seconds an output token, both over plain decoding at the same "
                "batch size. Right of the vertical line: more work; below the horizontal one: less time.",
                alt="A line a batch size from plain decoding at (1, 1) through depths 2, 4 and 7, all going "
                "right; where a line is below 1, speculation does more work in less time. A star a batch "
                "size is the depth by confidence.",
            ),
        ),
        tables=(_table(rows, sizes),),
        notes=(
            "FLOPs are 2 · parameters of the target · tokens in its passes, prompts included, which are the "
            "same for every policy; the drafter's own come on top and are not counted. Seconds are of all "
            "steps, prefill included. Greedy decoding, so every cell has to write the same text.",
            f"The first {NUM_REQUESTS} built-in prompts, math, code and chat in turn; they are short, so "
            "that most of the work is decoding. This project's recipes train drafters on answers to them, so "
            "that acceptance is higher than on new prompts.",
            "No paper has these numbers, so they can only have the shape; at which batch size the time turns "
            "is the machine's.",
        ),
    )


def over(rows: Rows, metric: str, policy: str, batch: int) -> float:
    """A metric over that of plain decoding at the same batch size."""
    return rows[policy, batch][metric] / rows[PLAIN, batch][metric]


def slower(rows: Rows, policy: str, batch: int) -> float:
    """Seconds an output token over those of plain decoding."""
    return 1 / over(rows, RATE, policy, batch)


def _claims(rows: Rows, sizes: Sequence[int]) -> list[Claim]:
    small, large = sizes[0], sizes[-1]
    note = "" if tuple(sizes) == BATCH_SIZES else f"shortened: batch {small} and {large}"
    best = min(FIXED, key=lambda policy: slower(rows, policy, small))
    alone, loaded = (over(rows, WORK, DEEP, batch) for batch in (small, large))
    named = f"{best}; {note}" if note else best
    return [
        MORE_WORK.measured(over(rows, WORK, best, small), named),
        LESS_TIME.measured(slower(rows, best, small), named),
        FEWER_BYTES.measured(over(rows, BYTES, best, small), named),
        LOADED_WORK.measured(loaded, note),
        LOADED_TIME.measured(slower(rows, DEEP, large), note),
        SAME_WORK.measured(loaded / alone, note),
        DYNAMIC_WORK.measured(
            max(rows[DYNAMIC, batch][WORK] / rows[DEEP, batch][WORK] for batch in sizes), note
        ),
        DYNAMIC_TIME.measured(
            max(rows[DEEP, batch][RATE] / rows[DYNAMIC, batch][RATE] for batch in sizes), note
        ),
    ]


def _table(rows: Rows, sizes: Sequence[int]) -> ResultTable:
    return ResultTable(
        title="An output token by batch size and policy; in brackets over plain decoding",
        columns=("batch", "policy", "target GFLOPs", "MB moved", "ms", "tokens a round"),
        rows=tuple(
            (
                *(str(batch), policy),
                f"{rows[policy, batch][WORK] / 1e9:.3f} ({over(rows, WORK, policy, batch):.2f})",
                f"{rows[policy, batch][BYTES] / 1e6:.1f} ({over(rows, BYTES, policy, batch):.2f})",
                f"{1000 / rows[policy, batch][RATE]:.1f} ({slower(rows, policy, batch):.2f})",
                _length(rows[policy, batch]["acceptance_length"]),
            )
            for batch in sizes
            for policy in (*POLICIES, DYNAMIC)
        ),
    )


def _length(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


EXPERIMENT = Experiment(
    name="e02_more_work",
    title="More work in less time",
    question="Does speculation do more work an output token, and when does it take less time all the same?",
    source="the premise of Leviathan et al., arXiv 2211.17192, and of DSpark, arXiv 2607.05147; no published "
    "numbers",
    minutes=3,
    run=run,
    claims=CLAIMS,
    needs=NEEDS,
    settings=(DRAFTER,),
)
