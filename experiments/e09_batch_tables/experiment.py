"""A switch and untuned tables by batch size against a tuned table, by replay on two machines' costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.e09_batch_tables.tables import CONTENDERS, SWITCH, TUNED
from experiments.reproduce import Claim, Context, Experiment, Figure, Outcome, ResultTable, Shape
from experiments.shipped.machines import H100, HERE
from experiments.shipped.models import DRAFTER, MODELS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dspark.analysis.replay.headroom import Estimate
    from experiments.e09_batch_tables.losses import Losses

BATCH_SIZES, QUICK_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64), (1, 4)

TUNED_CLAIMS = {
    machine: Claim(
        what=f"tuned table over the best fixed depth of each batch size, worst one, {machine}",
        shape=Shape(above=0.98),
    )
    for machine in (HERE, H100)
}
LOSS_CLAIMS = {
    (machine, name): Claim(
        what=f"{name} over the tuned table, worst batch size, {machine}", shape=Shape(below=1.0)
    )
    for machine in (HERE, H100)
    for name in CONTENDERS
    if name != TUNED
}


def run(context: Context) -> Outcome:
    """Tunes on one half of a trace's requests, replays on the other."""
    from experiments.e09_batch_tables.figure import draw
    from experiments.e09_batch_tables.losses import losses
    from experiments.shipped.recordings import recordings

    sizes = QUICK_BATCH_SIZES if context.quick else BATCH_SIZES
    found = losses(context, recordings(context), sizes)
    draw(found, context.folder / "losses.png")
    return Outcome(
        claims=tuple(claims(found)),
        figures=(
            Figure(
                file="losses.png",
                caption="Modelled tokens/s over those of the tuned table; bands are paired 95 % intervals.",
                alt="A panel a machine, a line a contender, against batch size. The tuned table is the "
                "level line at 1.",
            ),
        ),
        tables=tuple(_table(machine, each) for machine, each in found.items()),
        notes=(
            "Requests of the built-in prompts with the shipped drafter on SmolLM2-135M-Instruct, greedy. "
            "Every second one was tuned on, and the others are replayed. Intervals are of draws of these "
            "requests, the same for all contenders.",
            "The best switch has the depth and the threshold that do best on the requests tuned on, so what "
            "it loses is the form's and not a bad setting's. The other two tables are as they were found, "
            "for models and machines of others: what they lose is what copying a table costs.",
            f"Seconds of {HERE!r} are those of `dspark profile`, beyond its sizes by straight lines; those "
            f"of {H100!r} are a published fit for Llama-3.1-8B, under the acceptance of the small model.",
            "All are policies by batch size alone, with ideal switching: nothing here is vLLM's code. What a "
            "switch costs in an engine is not in it.",
        ),
    )


def claims(found: Mapping[str, Losses]) -> list[Claim]:
    """The claims, by machine."""
    told = []
    for machine, losses in found.items():
        size = min(losses.batch_sizes, key=lambda size: losses.over_best[TUNED, size].value)
        ratio = losses.over_best[TUNED, size]
        told.append(TUNED_CLAIMS[machine].measured(ratio.value, f"at batch {size}; {_interval(ratio)}"))
    for (machine, name), claim in LOSS_CLAIMS.items():
        size, ratio = found[machine].worst(name)
        which = f"; {found[machine].switch}" if name == SWITCH else ""
        told.append(claim.measured(ratio.value, f"at batch {size}; {_interval(ratio)}{which}"))
    return told


def _table(machine: str, losses: Losses) -> ResultTable:
    depths = ", ".join(f"{low} to {high}: {depth}" for low, high, depth in losses.tuned)
    others = [name for name in CONTENDERS if name != TUNED]
    return ResultTable(
        title=f"{machine}: over the tuned table (batch {depths})",
        columns=("batch", "best fixed", "tuned over best fixed", *others),
        rows=tuple(
            (
                *(str(size), losses.best_fixed[size].removeprefix("fixed ")),
                _shown(losses.over_best[TUNED, size]),
                *(_shown(losses.over_tuned[name, size]) for name in others),
            )
            for size in losses.batch_sizes
        ),
    )


def _shown(ratio: Estimate) -> str:
    return f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def _interval(ratio: Estimate) -> str:
    return f"95 % interval {ratio.low:.3f} to {ratio.high:.3f}"


EXPERIMENT = Experiment(
    name="e09_batch_tables",
    title="Switches and tables by batch size",
    question="How much do a switch and an untuned table by batch size lose against a tuned one?",
    source="vLLM's disable_by_batch_size and num_speculative_tokens_per_batch_size; no published numbers",
    minutes=2,
    run=run,
    claims=(*TUNED_CLAIMS.values(), *LOSS_CLAIMS.values()),
    needs=(MODELS,),
    settings=(DRAFTER,),
)
