"""Depth at small and large batches on a real model: a part of the comparison that the README quotes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from experiments.reproduce import Claim, Context, Experiment, Figure, Need, Outcome, ResultTable, Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

BATCH_SIZES, QUICK_BATCH_SIZES = (1, 4, 16), (1, 2)
POLICIES = ("fixed 0", "fixed 2", "fixed 4", "fixed 8", "batch_table")
FIXED = POLICIES[1:4]

SMALL = Claim(what="best fixed depth over plain decoding at batch 1, decode tokens/s", shape=Shape(above=1.0))
LARGE = Claim(
    what="deepest fixed depth over plain decoding at batch 16, decode tokens/s", shape=Shape(below=1.0)
)
FALLS = Claim(
    what="gain of a fixed depth of 4 at batch 16 over its gain at batch 1, decode tokens/s",
    shape=Shape(below=1.0),
)
FOLLOWS = Claim(
    what="batch_table over the better of plain and fixed decoding, worst batch size, decode tokens/s",
    shape=Shape(above=0.95),
)
LOSSLESS = Claim(what="cells whose tokens are not those of plain decoding", shape=Shape(below=1))
NO_RATIO = "too short for a step without a prompt in it"


def run(context: Context) -> Outcome:
    """One comparison; where it was stopped, it goes on."""
    from experiments.reproduce.commands import dspark

    sizes = QUICK_BATCH_SIZES if context.quick else BATCH_SIZES
    arguments = [
        *("compare", "experiment=e01_breadth_and_depth", "tracker=none"),
        f"compare.policies=[{','.join(POLICIES)}]",
        f"compare.batch_sizes={list(sizes)}",
    ]
    if context.quick:
        arguments += ["debug=smoke", "workload.num_requests=2", "sampling.max_new_tokens=12"]
    folder = dspark(arguments, context.folder / "compare")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    ratios: dict[tuple[str, int], float | None] = {
        (row["policy"], row["batch_size"]): row["ratio_to_plain"] for row in summary["rows"]
    }
    claims = _claims({key: value for key, value in ratios.items() if value is not None}, sizes)
    return Outcome(
        claims=(*claims, LOSSLESS.measured(_num_differing(summary))),
        figures=(
            Figure(
                file="compare/figures/tokens_per_s.png",
                caption="Output tokens/s by batch size; a policy in the shaded area loses by speculating.",
                alt="Lines of tokens per second against batch size, one a policy, left decoding alone, right "
                "end to end. The thick grey line is plain decoding.",
            ),
        ),
        tables=(
            ResultTable(
                title="Decode tokens/s, ratio to plain decoding",
                columns=("batch", *POLICIES),
                rows=tuple(
                    (str(size), *(_shown(ratios[policy, size]) for policy in POLICIES)) for size in sizes
                ),
            ),
        ),
        notes=(
            "SmolLM2-135M-Instruct in float32 with n-gram drafts, the first 16 built-in prompts, 48 new "
            "tokens each, greedy, one repeat, on this machine. No paper has these numbers, so they can only "
            "have the shape.",
            "Where depth stops paying depends on the machine: it is where a pass begins to be bound by "
            "arithmetic.",
        ),
    )


def _claims(ratios: Mapping[tuple[str, int], float], sizes: tuple[int, ...]) -> list[Claim]:
    """The claims about speed, by ratios to plain decoding; those without a ratio are left out."""
    small, large = sizes[0], sizes[-1]
    if len(ratios) < len(POLICIES) * len(sizes):
        return [claim.left_out(NO_RATIO) for claim in (SMALL, LARGE, FALLS, FOLLOWS)]
    note = "" if sizes == BATCH_SIZES else f"shortened: batch {small} and {large}"
    follows = min(
        ratios["batch_table", size] / max(1.0, *(ratios[policy, size] for policy in FIXED)) for size in sizes
    )
    return [
        SMALL.measured(max(ratios[policy, small] for policy in FIXED), note),
        LARGE.measured(ratios["fixed 8", large], note),
        FALLS.measured(ratios["fixed 4", large] / ratios["fixed 4", small], note),
        FOLLOWS.measured(follows, note),
    ]


def _num_differing(summary: Mapping[str, Any]) -> int:
    """Cells with other tokens than the reference."""
    return len({divergence["cell"] for divergence in summary["tokens"]["divergences"]})


def _shown(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _missing(context: Context) -> str | None:
    from dspark.models.sources import SMOLLM2, check_source

    if context.quick:  # which has a tiny random model
        return None
    try:
        check_source(SMOLLM2)
    except ValueError as error:
        return str(error)
    return None


EXPERIMENT = Experiment(
    name="e01_breadth_and_depth",
    title="Breadth and depth",
    question="Does depth help small batches and hurt large ones, and does a dynamic depth follow the better "
    "curve?",
    source="the premise of DSpark, arXiv 2607.05147, and of vLLM's tables by batch size; no published "
    "numbers",
    minutes=5,
    run=run,
    claims=(SMALL, LARGE, FALLS, FOLLOWS, LOSSLESS),
    needs=(Need(what="the default model", missing=_missing),),
)
