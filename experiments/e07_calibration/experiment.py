"""How right the confidence head's probabilities are, before and after sequential temperature scaling."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from experiments.drafting.drafter import DEPTH, DRAFTER, NEEDS, TEMPERATURE, dspark_drafter, size
from experiments.drafting.prompts import DATA, DATA_NEED, mixture, where_from
from experiments.reproduce import Claim, Context, Experiment, Figure, Outcome, ResultTable, Shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Positions = Mapping[int, Mapping[str, Any]]
    """What `dspark calibrate` says of a position's survival: samples, and scores before and after."""

NUM_REQUESTS, MAX_NEW_TOKENS = 36, 96

BEFORE = {1: 5.7, 3: 8.2, 5: 5.8, 7: 3.3}
AFTER = {1: 2.0, 3: 1.7, 5: 0.8, 7: 0.4}
AUC = {1: 0.818, 3: 0.812, 5: 0.864, 7: 0.907}
"""Figure 6 (Alpaca) by position: calibration error in % before and after, and area under the ROC curve."""

LARGEST_ERROR, SMALLEST_AUC = 3.0, 0.75

ERRORS = {
    k: Claim(
        what=f"calibration error of the survival after scaling, position {k}",
        paper=paper,
        tolerance=0.5,
        unit="%",
        shape=Shape(below=LARGEST_ERROR),
    )
    for k, paper in AFTER.items()
}
AREAS = {
    k: Claim(
        what=f"area under the ROC curve of the survival, position {k}",
        paper=paper,
        tolerance=0.02,
        shape=Shape(above=SMALLEST_AUC),
    )
    for k, paper in AUC.items()
}
MENDS = Claim(
    what="calibration error after scaling over that before, sums over these positions",
    paper=round(sum(AFTER.values()) / sum(BEFORE.values()), 2),
    tolerance=0.1,
    shape=Shape(below=1),
)


def run(context: Context) -> Outcome:
    """One calibration; where it was stopped, it goes on."""
    from experiments.reproduce.commands import dspark

    folder = dspark(
        [
            *("calibrate", *dspark_drafter(context).overrides(), "verification=rejection"),
            *("calibrate.estimator=confidence", f"calibrate.depth={DEPTH}"),
            f"sampling.temperature={context.settings[TEMPERATURE.name]}",
            *mixture(context, NUM_REQUESTS),
            *size(context, MAX_NEW_TOKENS),
        ],
        context.folder / "calibrate",
    )
    scores = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
    positions: Positions = {each["position"]: each for each in scores["positions"]}
    return Outcome(
        claims=tuple(_claims(positions)),
        figures=(
            Figure(
                file="calibrate/figures/reliability.png",
                caption="Reliability by position: the share that was accepted against the probability that "
                "was given, before and after scaling.",
                alt="A column a position. Points on the diagonal are right; a histogram shows how many "
                "drafts each probability was given to.",
            ),
        ),
        tables=(_table(positions),),
        notes=(
            f"Drafts of {DEPTH} tokens, all verified. Temperatures are fitted on one half of the requests "
            "and judged by the other, so the numbers after scaling are of requests that the fit did not see.",
            "The survival at position k is the probability that the draft is accepted up to k: the product "
            "of the head's answers. A position that few drafts of the fit half reach keeps temperature 1.",
            "The paper's prompts are Alpaca's and its target Qwen3-4B. " + where_from(context),
        ),
    )


def _claims(positions: Positions) -> list[Claim]:
    claims = []
    for k, claim in ERRORS.items():
        claims.append(_of(claim, positions[k], positions[k]["survival"]["after"]["ece"], 100))
    for k, claim in AREAS.items():
        claims.append(_of(claim, positions[k], positions[k]["survival"]["after"]["roc_auc"], 1))
    before = _sum(positions[k]["survival"]["before"]["ece"] for k in BEFORE)
    after = _sum(positions[k]["survival"]["after"]["ece"] for k in AFTER)
    if before and after is not None:
        return [*claims, MENDS.measured(after / before)]
    return [*claims, MENDS.left_out("there is no error to mend, or no draft to find one")]


def _of(claim: Claim, position: Mapping[str, Any], value: float | None, scale: float) -> Claim:
    survival = position["survival"]
    note = f"{survival['num_samples']:,} drafts, {survival['num_accepted']:,} accepted"
    if value is None:
        return claim.left_out(f"nothing to tell apart: {note}")
    return claim.measured(scale * value, note + ("" if position["fitted"] else "; temperature not fitted"))


def _sum(values: Iterable[float | None]) -> float | None:
    """The sum, or None where one is missing."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _table(positions: Positions) -> ResultTable:
    return ResultTable(
        title="Survival by position",
        columns=(
            *("position", "temperature", "drafts", "accepted"),
            *("error before, paper", "ours", "error after, paper", "ours", "area, paper", "ours"),
        ),
        rows=tuple(_row(k, each) for k, each in positions.items()),
    )


def _row(k: int, position: Mapping[str, Any]) -> tuple[str, ...]:
    survival = position["survival"]
    before, after = survival["before"], survival["after"]
    fitted = f"{position['temperature']:.2f}" if position["fitted"] else "1, not fitted"
    return (
        *(str(k), fitted, f"{survival['num_samples']:,}", f"{survival['num_accepted']:,}"),
        *(_percent(BEFORE.get(k), 1), _percent(before["ece"], 100)),
        *(_percent(AFTER.get(k), 1), _percent(after["ece"], 100)),
        *(_shown(AUC.get(k)), _shown(after["roc_auc"])),
    )


def _percent(value: float | None, scale: float) -> str:
    return "-" if value is None else f"{scale * value:.1f} %"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


EXPERIMENT = Experiment(
    name="e07_calibration",
    title="Calibration of the confidence head",
    question="Are the confidence head's probabilities right, and do temperatures mend what is wrong?",
    source="DSpark, arXiv 2607.05147, figure 6",
    minutes=2,
    run=run,
    claims=(*ERRORS.values(), *AREAS.values(), MENDS),
    needs=(*NEEDS, DATA_NEED),
    settings=(DRAFTER, DATA, TEMPERATURE),
)
