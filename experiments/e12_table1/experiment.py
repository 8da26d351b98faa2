"""Table 1 of DSpark: accepted lengths of the released drafters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.e12_table1.cells import DRAFTERS, SETS, TARGETS, Cell, cells, published
from experiments.e12_table1.needs import CELLS, DATA, NEEDS
from experiments.reproduce import REPO, Claim, Context, Experiment, Figure, Outcome, ResultTable, Setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from experiments.e12_table1.evaluate import Measured

RELATIVE = 0.03  # both sides are one sample of texts, and kernels differ
NOT_CHOSEN = "not among the cells asked for"
SHORTENED = "left out of the shortened run"
STOOD_IN = "tiny random models, which have nothing to do with the paper's"

CLAIMS = {
    cell: Claim(
        what=f"accepted length, {cell.target}, {cell.drafter}, {cell.prompts}",
        paper=length,
        tolerance=RELATIVE * length,
    )
    for cell, length in published().items()
    if cell in cells()
}


def run(context: Context) -> Outcome:
    """A run a cell."""
    from experiments.e12_table1.evaluate import evaluate
    from experiments.e12_table1.figure import draw

    found, absent = evaluate(context)
    draw({cell: each.acceptance_length for cell, each in found.items()}, context.folder / "table1.png")
    return Outcome(
        claims=tuple(claims(found, absent, quick=context.quick)),
        figures=(
            Figure(
                file="table1.png",
                caption="Accepted length, ours against the paper's; on the line both are equal.",
                alt="A dot a cell of the table, coloured by drafter, around the diagonal.",
            ),
        ),
        tables=tuple(_table(target, found) for target in TARGETS if any(c.target == target for c in found)),
        notes=(
            "DeepSpec's protocol: temperature 1, blocks of 7, no scheduler, rejection sampling, first turns "
            "in the target's template without thinking, at most 2,048 new tokens; files longer than a set's "
            "number are shuffled by its seed and cut. Ours decodes 32 prompts at a time, theirs one, which "
            "changes no law. Bonus tokens are counted, as in the paper.",
            "Not in here: Gemma4-12B, whose drafter is not implemented; its numbers are in table1.json with "
            "the others. Speed: the paper's table has none.",
        ),
    )


def claims(found: Mapping[Cell, Measured], absent: Mapping[Cell, str], *, quick: bool) -> list[Claim]:
    """All claims, in the order of the table."""
    told = []
    for cell, claim in CLAIMS.items():
        if cell in found:
            each = found[cell]
            note = STOOD_IN if quick else f"{each.num_requests} prompts, {each.num_rounds} rounds"
            told.append(claim.measured(each.acceptance_length, note))
        else:
            told.append(claim.left_out(SHORTENED if quick else absent.get(cell, NOT_CHOSEN)))
    return told


def _table(target: str, found: Mapping[Cell, Measured]) -> ResultTable:
    """Ours and the paper's of a target, a row a drafter."""
    paper = published()

    def shown(drafter: str, prompts: str) -> str:
        cell = Cell(target, drafter, prompts)
        ours = f"{found[cell].acceptance_length:.2f}" if cell in found else "-"
        return f"{ours} ({paper[cell]:.2f})"

    return ResultTable(
        title=f"{target}: accepted length, the paper's in brackets",
        columns=("drafter", *SETS),
        rows=tuple((drafter, *(shown(drafter, prompts) for prompts in SETS)) for drafter in DRAFTERS),
    )


EXPERIMENT = Experiment(
    name="e12_table1",
    title="Accepted lengths of released drafters",
    question="Do the released drafters have the accepted lengths of the paper here?",
    source="DSpark, arXiv 2607.05147, table 1; protocol and checkpoints of github.com/deepseek-ai/DeepSpec",
    minutes=0.1,
    run=run,
    claims=tuple(CLAIMS.values()),
    needs=NEEDS,
    settings=(
        Setting(
            name=DATA,
            what="folder of DeepSpec's evaluation files (gsm8k.jsonl, ...)",
            default=str(REPO.parent / "shared" / "data" / "eval_datasets"),
        ),
        CELLS,
    ),
)
