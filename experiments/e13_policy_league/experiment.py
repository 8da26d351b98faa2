"""Every policy of the package against the best fixed depth, by batch size and domain, on two machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.reproduce import Claim, Context, Experiment, Figure, Outcome, ResultTable, Shape
from experiments.shipped.machines import H100, HERE
from experiments.shipped.models import DRAFTER, MODELS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from experiments.e13_policy_league.league import Placing, Standing
    from experiments.e13_policy_league.live import Spot

BATCH_SIZES, QUICK_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64), (1, 4)
MACHINES = (HERE, H100)

NEVER_BELOW = {
    machine: Claim(
        what=f"best policy over the best fixed depth, worst batch size and domain, {machine}",
        shape=Shape(above=0.98),
    )
    for machine in MACHINES
}
SOMEWHERE = {
    machine: Claim(
        what=f"best policy over the best fixed depth, best batch size and domain, {machine}",
        shape=Shape(above=1.05),
    )
    for machine in MACHINES
}
HEADROOM = {
    machine: Claim(
        what=f"headroom captured by the best policy, mean over batch sizes and domains, {machine}",
        shape=Shape(above=0.5),
    )
    for machine in MACHINES
}
LIVE = Claim(
    what="measured: best policy over the best fixed depth, worst batch size run live, decode tokens/s",
    shape=Shape(above=0.95),
)
NO_ROOM = "hindsight is nowhere surely faster than the best fixed depth"
NO_SPEED = "too short for a step without a prompt in it"


def run(context: Context) -> Outcome:
    """Replays, then a few live runs."""
    from rich.table import Table

    from experiments.e13_policy_league.figure import draw_headroom, draw_ratios
    from experiments.e13_policy_league.league import play, standings, write_csv
    from experiments.e13_policy_league.live import spots
    from experiments.shipped.recordings import recordings

    recorded = recordings(context)
    placings = play(context, recorded, QUICK_BATCH_SIZES if context.quick else BATCH_SIZES)
    write_csv(placings, context.folder / "league.csv")
    tables = {machine: standings(placings, machine) for machine in MACHINES}
    here = [each for each in placings if each.machine == HERE]
    live = spots(context, recorded, here, tables[HERE][0].label)
    draw_ratios(placings, MACHINES, context.folder / "ratios.png")
    draw_headroom(placings, MACHINES, context.folder / "headroom.png")
    shown = [league_table(machine, table) for machine, table in tables.items()]
    for each in shown:
        told = Table(*each.columns, title=each.title)
        for row in each.rows:
            told.add_row(*row)
        context.console.print(told)
    return Outcome(
        claims=(*modelled_claims(tables), live_claim(live)),
        figures=(
            Figure(
                file="ratios.png",
                caption="Modelled tokens/s over the best fixed depth of each batch size, geometric mean over "
                "domains.",
                alt="A heat map a machine: a row a policy, a column a batch size, a number in every cell. "
                "Policies are in the order of their mean on this machine.",
            ),
            Figure(
                file="headroom.png",
                caption="Headroom captured: 0 is the best fixed depth, 1 is hindsight; bars are cut at -1.",
                alt="Horizontal bars, one a policy, a panel a machine.",
            ),
        ),
        tables=(*shown, _live_table(live)),
        notes=(
            "SmolLM2-135M-Instruct with the shipped drafter, blocks of 7, greedy, 12 built-in prompts of "
            "each of three domains, 64 new tokens. Every policy is as its YAML has it, no deeper than the "
            "blocks; left out are `fixed`, which is what they are held against, and `dsde`, which asks for "
            "what a trace does not hold. All numbers are in league.csv, with paired 95 % intervals.",
            "The best policy is the one with the best geometric mean over all batch sizes and domains of a "
            "machine, chosen on the same requests: the best of two dozen looks a little better than it is. "
            "It is one policy at all batch sizes, and the fixed depth it is held against is another one at "
            "each.",
            "Policies of class D (`dcut`, `tetris`, `retrospective_argmax`, `sampled_drop`) bias samples "
            "under rejection sampling; greedy, as here, or coupled they may be used.",
            "A block drafter pays for its block whatever is planned, so depths save verification, and "
            "drafting only where nobody drafts. Seconds of "
            f"{HERE!r} are those of `dspark profile`, by straight lines beyond its sizes; those of {H100!r} "
            "are a published fit for Llama-3.1-8B, under the acceptance of the small model.",
        ),
    )


def modelled_claims(tables: Mapping[str, Sequence[Standing]]) -> list[Claim]:
    """The claims of replays, a machine after another within each kind."""
    never_below, somewhere, headroom = [], [], []
    for machine, table in tables.items():
        first = table[0]
        never_below.append(NEVER_BELOW[machine].measured(first.worst.ratio, _place(first.worst)))
        somewhere.append(SOMEWHERE[machine].measured(first.best.ratio, _place(first.best)))
        shares = [(each.mean_headroom, each.policy) for each in table if each.mean_headroom is not None]
        if shares:
            share, policy = max(shares)
            headroom.append(HEADROOM[machine].measured(share, policy))
        else:
            headroom.append(HEADROOM[machine].left_out(NO_ROOM))
    return [*never_below, *somewhere, *headroom]


def live_claim(live: Mapping[int, Spot]) -> Claim:
    """The claim of the live runs."""
    if not live:
        return LIVE.left_out(NO_SPEED)
    size = min(live, key=lambda size: live[size].ratio)
    spot = live[size]
    return LIVE.measured(spot.ratio, f"{spot.policy} over {spot.best_fixed} at batch {size}; one repeat")


def league_table(machine: str, table: Sequence[Standing]) -> ResultTable:
    """A row a policy, the best first."""
    return ResultTable(
        title=f"{machine}: speed over the best fixed depth, and headroom captured",
        columns=("policy", "mean", "worst", "where", "best", "where", "headroom"),
        rows=tuple(
            (
                *(each.label, f"{each.mean_ratio:.3f}"),
                *(f"{each.worst.ratio:.3f}", _where(each.worst)),
                *(f"{each.best.ratio:.3f}", _where(each.best)),
                "-" if each.mean_headroom is None else f"{each.mean_headroom:.2f}",
            )
            for each in table
        ),
    )


def _live_table(live: Mapping[int, Spot]) -> ResultTable:
    return ResultTable(
        title="Measured decode tokens/s",
        columns=("batch", "policy", "tokens/s", "best fixed of those run", "ratio"),
        rows=tuple(
            (str(size), spot.policy, f"{spot.tokens_per_s:.1f}", spot.best_fixed, f"{spot.ratio:.3f}")
            for size, spot in live.items()
        ),
    )


def _where(placing: Placing) -> str:
    return f"{placing.domain}, batch {placing.batch_size}"


def _place(placing: Placing) -> str:
    return (
        f"{placing.label}: {_where(placing)}, over {placing.best_fixed}; 95 % interval "
        f"{placing.ratio_low:.3f} to {placing.ratio_high:.3f}"
    )


EXPERIMENT = Experiment(
    name="e13_policy_league",
    title="The league of policies",
    question="How much of what a dynamic depth could gain does each policy gain, at which batch size?",
    source="no paper: the bars that this project has set itself",
    minutes=8,
    run=run,
    claims=(*NEVER_BELOW.values(), *SOMEWHERE.values(), *HEADROOM.values(), LIVE),
    needs=(MODELS,),
    settings=(DRAFTER,),
)
