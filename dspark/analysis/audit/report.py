"""What an audit found, as tables and lines for people."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dspark.analysis.audit.rules import EXACT_RULES
from dspark.analysis.audit.words import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.table import Table

    from dspark.analysis.audit.verdict import Audit, Masses, WorldResult


def policies_table(audits: Sequence[Audit]) -> Table:
    """One row a policy: class declared and found, largest bias by rule, perturbation test, verdict."""
    from rich.table import Table

    table = Table(title=_title(audits), title_justify="left")
    table.add_column("policy")
    for heading in ("class\ndeclared", "class\nfound"):
        table.add_column(heading, justify="center")
    for rule in EXACT_RULES:
        table.add_column(f"bias\n{rule}", justify="right")
    table.add_column("toy worlds", justify="right")
    table.add_column("decisions changed\nby another token", justify="right")
    table.add_column(f"under {' / '.join(sorted({audit.rule for audit in audits}))}")
    for audit in audits:
        biases = {audit.rule: audit.bias, **audit.others}
        agree = "" if audit.found is audit.declared else " !"
        table.add_row(
            audit.policy,
            audit.declared.value,
            f"{audit.found.value}{agree}",
            *(_bias(biases[rule]) for rule in EXACT_RULES),
            str(len(audit.worlds)),
            _flips(audit),
            "[red]biased[/red]" if audit.is_biased else "[green]exact[/green]",
        )
    return table


def worlds_table(audit: Audit) -> Table:
    """One row a world and request: the law of a token as it comes out and as it should."""
    from rich.table import Table

    table = Table(title=f"{audit.policy} under {audit.rule}", title_justify="left")
    for heading in ("world", "drafter"):
        table.add_column(heading)
    table.add_column("row")
    table.add_column("token", justify="right")
    for heading in ("comes out", "target", "bias of\nall rows"):
        table.add_column(heading, justify="right")
    for world in audit.worlds:
        for i, (row, law, target) in enumerate(_rows(world)):
            first = i == 0
            table.add_row(
                world.world if first else "",
                ("token by token" if world.autoregressive else "block") if first else "",
                row,
                str(world.token),
                _law(law),
                _law(target),
                _bias(world.bias) if first else "",
                style="bold" if world.bias else None,
            )
    return table


def lines(audit: Audit) -> Iterator[str]:
    """The verdict in sentences."""
    declared = f"class declared {audit.declared.value}, found {audit.found.value}"
    if audit.is_biased:
        bias = f"total variation {audit.bias} = {number(audit.bias)}" if audit.bias else "by its decisions"
        yield f"{audit.policy}: BIASED under {audit.rule}, {bias}; {declared}"
    else:
        yield f"{audit.policy}: exact under {audit.rule}; {declared}"
    if audit.simplest is not None:
        yield f"  counterexample ({audit.simplest.world}): {audit.simplest.words}"
    if audit.others and audit.bias:
        shown = ", ".join(f"{rule} {number(bias)}" for rule, bias in audit.others.items())
        yield f"  largest bias under the other rules: {shown}"
    if audit.num_hunted:
        yield (
            f"  hunt: in {audit.num_caught} of {audit.num_hunted} small worlds a decision hangs on the token "
            "it is about"
        )
    if audit.influence.num_decisions:
        yield (
            f"  random signals: another token changed {audit.influence.num_flips} of "
            f"{audit.influence.num_decisions} decisions about its own position"
        )
    if audit.traces is not None:
        yield (
            f"  real steps: another token changed {len(audit.traces.flips)} of {audit.traces.num_decisions} "
            f"decisions about its own position, in {audit.traces.num_steps} steps"
        )
        for flip in audit.traces.flips[:1]:
            yield (
                f"    row {flip.row}, x_{flip.position}: with token {flip.token} {flip.verified} drafts are "
                f"verified, with token {flip.other_token} {flip.other_verified}"
            )
    if audit.num_flips and not audit.is_biased:
        why = (
            "the drafts are no samples" if audit.deterministic else f"{audit.rule} emits the target's choice"
        )
        yield f"  its decisions hang on the drawn tokens, which does no harm here: {why} at any length"
    if audit.is_biased:
        yield "  exact with verification=coupled, greedily, or with a drafter that does not sample"


def _rows(world: WorldResult) -> Iterator[tuple[str, Masses, Masses]]:
    """Label, law and target of the rows with a choice; like rows also have a mean."""
    shown = [
        (str(row), law, target)
        for row, (law, target) in enumerate(zip(world.law, world.target, strict=True))
        if len(law) > 1
    ]
    yield from shown
    if len(shown) > 1 and len({target for _, _, target in shown}) == 1:
        count = len(shown)
        mean = tuple(
            sum(masses, Fraction(0)) / count for masses in zip(*(law for _, law, _ in shown), strict=True)
        )
        yield "mean", mean, shown[0][2]


def _title(audits: Sequence[Audit]) -> str:
    biased = [audit.policy for audit in audits if audit.is_biased]
    differ = [audit.policy for audit in audits if audit.found is not audit.declared]
    parts = [f"{len(audits)} policies: {len(audits) - len(biased)} exact"]
    parts.append(f"{len(biased)} biased ({', '.join(biased)})" if biased else "none biased")
    parts.append(
        f"declared class differs from the one found (!) for {', '.join(differ)}"
        if differ
        else "class declared = class found for all"
    )
    return "; ".join(parts)


def _flips(audit: Audit) -> str:
    toy = audit.num_caught + audit.influence.num_flips
    shown = f"{toy} of {audit.num_hunted + audit.influence.num_decisions}"
    if audit.traces is not None:
        shown += f"; real: {len(audit.traces.flips)} of {audit.traces.num_decisions}"
    return shown


def _bias(bias: Fraction) -> str:
    return "0" if bias == 0 else number(bias)


def _law(masses: Masses) -> str:
    return " / ".join(map(number, masses))
