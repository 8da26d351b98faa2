"""What an experiment is, what it is given, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.reproduce.claims import Claim, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import Console

REPO = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Something that can be set as ``NAME=VALUE``; experiments with a setting of the same name share it."""

    name: str
    what: str
    default: str | None = None


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a run of an experiment is given."""

    folder: Path  # its own, for whatever it writes; kept when a stopped run goes on
    console: Console  # messages of progress; results go into the outcome
    quick: bool = False  # shortened, on something tiny: it must show that everything runs, in seconds
    settings: Mapping[str, str | None] = field(default_factory=dict)  # those that the experiment declares

    def path(self, name: str) -> Path | None:
        """The setting as a path, relative ones from the working folder; None where it is not set."""
        value = self.settings[name]
        return None if value is None else Path(value).expanduser()


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something that not every machine has."""

    what: str  # for lists
    missing: Callable[[Context], str | None]  # why it cannot be had and what to do, or None if it is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A PNG or SVG file that the experiment has drawn.

    Raises:
        ValueError: another kind of file, or no words for those who do not see it.
    """

    file: str  # in the folder of the context
    caption: str
    alt: str  # what there is to see, in words

    def __post_init__(self) -> None:
        if Path(self.file).suffix not in (".png", ".svg"):
            raise ValueError(f"a figure must be a .png or .svg file, got {self.file!r}")
        if not self.alt.strip():
            raise ValueError(f"the figure {self.file!r} needs an alt text: say what there is to see")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTable:
    """Numbers that are no claims; cells are texts, ready to be shown.

    Raises:
        ValueError: a row of another length than the heading.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"a row of {self.title!r} must have {len(self.columns)} cells, as its columns say, "
                    f"got {len(row)}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run found.

    Raises:
        ValueError: no claims, two of the same words, or one without a number that does not say why.
    """

    claims: tuple[Claim, ...]
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()  # what it shows and does not, a paragraph each
    tables: tuple[ResultTable, ...] = ()

    def __post_init__(self) -> None:
        if not self.claims:
            raise ValueError("an outcome needs a claim, got none")
        for number, claim in enumerate(self.claims):
            if claim.status is Status.NOT_RUN and not claim.note:
                raise ValueError(f"{claim.what!r} has no number and does not say why: use left_out(WHY)")
            if any(claim.what == other.what for other in self.claims[:number]):
                raise ValueError(f"two claims say {claim.what!r}: each must stand alone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One question to a paper. A module ``experiments/eNN_name/experiment.py`` holds one as ``EXPERIMENT``.

    The module is imported to list it, so what takes long to import goes inside ``run``.

    Raises:
        ValueError: a name without a number, or no time for it.
    """

    name: str  # of its folder
    title: str
    question: str
    source: str  # paper and place
    minutes: float  # what to expect of 2 cores: a budget, not a measurement
    run: Callable[[Context], Outcome]
    claims: tuple[Claim, ...] = ()  # without numbers of ours; shown where it cannot run
    needs: tuple[Need, ...] = ()
    settings: tuple[Setting, ...] = ()

    def __post_init__(self) -> None:
        if not (self.name[:1] == "e" and self.name[1:3].isdigit() and self.name[3:4] == "_"):
            raise ValueError(f"an experiment's name must be like e03_selection_bias, got {self.name!r}")
        if not self.minutes > 0:
            raise ValueError(f"minutes of {self.name} must be > 0, got {self.minutes!r}")
        if any(claim.ours is not None for claim in self.claims):
            raise ValueError(f"claims of {self.name} must come without numbers of ours: `run` gives them")
