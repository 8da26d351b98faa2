"""A counterexample in words: which decision hangs on which token, and what comes of it."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dspark.analysis.audit.flips import Flip
    from dspark.analysis.audit.output_law import OutputLaw
    from dspark.analysis.audit.tables import Joint, Path
    from dspark.analysis.audit.world import World


def name(token: int) -> str:
    """A letter for a token of a toy vocabulary."""
    return chr(ord("A") + token)


def number(mass: Fraction) -> str:
    """A probability to four digits, at least two of them shown; a smaller one to two significant digits."""
    if 0 < mass < Fraction(1, 10_000):
        return f"{float(mass):.2g}"
    return f"{float(mass):.4f}".rstrip("0").ljust(4, "0")


def counterexample(world: World, law: OutputLaw, flip: Flip | None) -> str:
    """One sentence: the decision that hangs on its own token, and the bias that it makes."""
    cause = "" if flip is None else f"{_decision(world, flip)}, so "
    return f"{cause}{_effect(law)}"


def _decision(world: World, flip: Flip) -> str:
    """When it verifies how much."""
    begun = f" after {_path(flip.output)}" if flip.output else ""
    # rows with one possible token draft the same in any case
    beside = "".join(
        f", beside {_path(draft)} in row {row}"
        for row, draft in flip.beside
        if draft and world.requests[row].vocab_size > 1
    )
    prefix = flip.kept[: flip.position - 1]
    given = f"given the draft {_path(prefix)}, " if prefix else ""
    differ = flip.kept[flip.position - 1] != flip.dropped[flip.position - 1]
    kept, dropped = (
        _drawn(draft, flip.position, through=flip.position if differ else len(draft))
        for draft in (flip.kept, flip.dropped)
    )
    return (
        f"row {flip.row}{begun}{beside}: {given}when {dropped} the policy verifies {flip.dropped_length} of "
        f"{len(flip.dropped)} drafted tokens, when {kept} it verifies {flip.kept_length} of {len(flip.kept)}"
    )


def _drawn(draft: Path, start: int, *, through: int) -> str:
    """The tokens at some positions: ``x_1 = A``."""
    return ", ".join(f"x_{k} = {name(draft[k - 1])}" for k in range(start, through + 1))


def _effect(law: OutputLaw) -> str:
    """What comes out against what should: of the shortest beginning of a row that shows it."""
    rows = len(next(iter(law.target)))
    horizon = len(next(iter(law.target))[0])
    for length in range(1, horizon + 1):
        for row in range(rows):
            got, wanted = law.row(row, length), law.wanted_row(row, length)
            worst = _largest_difference(got, wanted)
            if got.get(worst, Fraction(0)) != wanted.get(worst, Fraction(0)):
                what = "comes out first" if length == 1 else "is how the output begins"
                return (
                    f"{_path(worst)} {what} in row {row} with {_chance(got, worst)} instead of "
                    f"{_chance(wanted, worst)}"
                )
    outputs = max(
        {*law.joint, *law.target},
        key=lambda key: (abs(law.joint.get(key, Fraction(0)) - law.target.get(key, Fraction(0))), key),
    )
    shown = " and ".join(f"{_path(output)} in row {row}" for row, output in enumerate(outputs))
    got, wanted = (number(joint.get(outputs, Fraction(0))) for joint in (law.joint, law.target))
    return f"every row alone is exact, and together they are not: {shown} come with {got} instead of {wanted}"


def _largest_difference(a: Joint, b: Joint) -> Path:
    """The path whose probabilities differ most; of equal ones that which gained, then the first."""
    zero = Fraction(0)
    return max(
        sorted({*a, *b}),
        key=lambda path: (abs(a.get(path, zero) - b.get(path, zero)), a.get(path, zero) - b.get(path, zero)),
    )


def _chance(joint: Joint, path: Path) -> str:
    return number(joint.get(path, Fraction(0)))


def _path(path: Path) -> str:
    """Tokens in a row: ``A B``."""
    return " ".join(map(name, path))
