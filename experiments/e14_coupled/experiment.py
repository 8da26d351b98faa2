"""What coupled verification costs in acceptance, and what sharing randomness is worth to a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.e14_coupled.cells import DEPTHS, RULES, TEMPERATURES
from experiments.reproduce import Claim, Context, Experiment, Figure, Outcome, ResultTable, Shape
from experiments.shipped.models import DRAFTER, MODELS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from experiments.e14_coupled.runs import Sampled

    Found = Mapping[tuple[str, float], Sampled]

NUM_SEEDS, QUICK_SEEDS = 3, 1

EXACT = {
    rule: Claim(what=f"largest distance of an output law from the target's on toy worlds, {rule}", paper=0)
    for rule in RULES
}
GIVEN_UP = {
    (temperature, depth): Claim(
        what=f"acceptance length, coupled over rejection, T = {temperature:g}, depth {depth}",
        shape=Shape(below=1.0),
    )
    for temperature in TEMPERATURES
    for depth in DEPTHS
}
KEPT = {
    temperature: Claim(
        what=f"share of first drafts accepted, coupled over the least in theory, T = {temperature:g}",
        shape=Shape(above=1.0),
        note="(1 - t)/(1 + t) where rejection accepts 1 - t",
    )
    for temperature in TEMPERATURES
}
SAME_TEXT = {
    temperature: Claim(
        what=f"requests with another text at another depth, coupled, T = {temperature:g}",
        shape=Shape(below=1),
    )
    for temperature in TEMPERATURES
}
OTHER_TEXT = {
    temperature: Claim(
        what=f"requests with another text at another depth, rejection, T = {temperature:g}",
        shape=Shape(above=0),
    )
    for temperature in TEMPERATURES
}
LESS_NOISE = {
    temperature: Claim(
        what=f"standard error of depth 7 against depth 4, coupled over rejection, T = {temperature:g}",
        shape=Shape(below=1.0),
        note="of tokens a round, request by request",
    )
    for temperature in TEMPERATURES
}
NO_NOISE = "no request differs between the depths under rejection, so there is nothing to save"


def run(context: Context) -> Outcome:
    """Enumerates, then samples."""
    from experiments.e14_coupled.figure import draw
    from experiments.e14_coupled.law import largest_bias
    from experiments.e14_coupled.runs import sampled

    exact = []
    for rule, claim in EXACT.items():
        bias, num_worlds = largest_bias(rule, QUICK_SEEDS if context.quick else NUM_SEEDS)
        exact.append(claim.measured(bias, f"{num_worlds} worlds, exact fractions"))
    found = sampled(context)
    draw(found, context.folder / "coupled.png")
    return Outcome(
        claims=(*exact, *claims(found)),
        figures=(
            Figure(
                file="coupled.png",
                caption="Left: acceptance length. Right: standard error of the difference between two "
                "depths, tokens a round.",
                alt="Two panels of paired bars, rejection beside coupled, by temperature and depth.",
            ),
        ),
        tables=(_table(found),),
        notes=(
            "SmolLM2-135M-Instruct with the shipped drafter, 36 built-in prompts, 48 new tokens, batch 16, "
            "the same prompts and seeds in all runs. Each number is of one sample of texts; under rejection "
            "every depth has texts of its own, so a part of a difference in acceptance is the texts'.",
            "Under coupled verification the noise of a position is a function of seed and position alone, so "
            "two depths are compared on one text. What is left of the standard error is how much depth "
            "matters from request to request, which no seed takes away.",
            "Exactness is of laws: both rules sample what the target would. Which text comes is the same for "
            "all depths under coupled, and not under rejection.",
        ),
    )


def claims(found: Found) -> list[Claim]:
    """The claims about the runs."""
    from experiments.e14_coupled.law import least_acceptance

    told = []
    for (temperature, depth), claim in GIVEN_UP.items():
        coupled, rejection = (found[rule, temperature].lengths[depth] for rule in ("coupled", "rejection"))
        told.append(claim.measured(coupled / rejection, f"{coupled:.3f} over {rejection:.3f}"))
    for temperature, claim in KEPT.items():
        coupled, rejection = (found[rule, temperature].first for rule in ("coupled", "rejection"))
        least = least_acceptance(rejection)
        why = f"{coupled:.3f} over {least:.3f}, where rejection has {rejection:.3f}; {claim.note}"
        told.append(
            claim.measured(coupled / least, why) if least > 0 else claim.left_out("rejection accepts nothing")
        )
    for kind, rule in ((SAME_TEXT, "coupled"), (OTHER_TEXT, "rejection")):
        for temperature, claim in kind.items():
            runs = found[rule, temperature]
            told.append(claim.measured(runs.num_differing, f"of {runs.num_requests}"))
    for temperature, claim in LESS_NOISE.items():
        coupled, rejection = (found[rule, temperature].standard_error for rule in ("coupled", "rejection"))
        if rejection == 0:
            told.append(claim.left_out(NO_NOISE))
        else:
            told.append(
                claim.measured(coupled / rejection, f"{coupled:.4f} over {rejection:.4f}; {claim.note}")
            )
    return told


def _table(found: Found) -> ResultTable:
    rows = []
    for (rule, temperature), runs in found.items():
        lengths = [f"{runs.lengths[depth]:.3f}" for depth in DEPTHS]
        speeds = [runs.decode_tokens_per_s[depth] for depth in DEPTHS]
        rows.append(
            (
                *(f"{temperature:g}", rule, *lengths, f"{runs.first:.3f}"),
                *("-" if speed is None else f"{speed:.1f}" for speed in speeds),
                *(f"{runs.standard_error:.4f}", f"{runs.unpaired_standard_error:.4f}"),
            )
        )
    return ResultTable(
        title="Both rules, side by side",
        columns=(
            *(
                "T",
                "rule",
                *(f"acceptance length, depth {depth}" for depth in DEPTHS),
                "first draft accepted",
            ),
            *(f"decode tokens/s, depth {depth}" for depth in DEPTHS),
            *("standard error of the difference", "the same, not paired"),
        ),
        rows=tuple(rows),
    )


EXPERIMENT = Experiment(
    name="e14_coupled",
    title="Coupled against rejection",
    question="How much acceptance does coupled verification give up, and what does shared randomness save?",
    source="Daliri, Musco and Suresh, arXiv 2408.07978: the coupling, and the least it accepts",
    minutes=4,
    run=run,
    claims=(
        *EXACT.values(),
        *GIVEN_UP.values(),
        *KEPT.values(),
        *SAME_TEXT.values(),
        *OTHER_TEXT.values(),
        *LESS_NOISE.values(),
    ),
    needs=(MODELS,),
    settings=(DRAFTER,),
)
