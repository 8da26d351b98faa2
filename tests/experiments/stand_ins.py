"""Experiments that stand in for real ones: what they do is given, and counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console

from experiments.reproduce import Claim, Context, Experiment, Figure, Need, Outcome, ResultTable, Shape
from experiments.reproduce.runner import Options, run_experiments

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from experiments.reproduce.result import Result

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'
EQUAL = Claim(what="a <number> & its equal", paper=2.0, tolerance=0.1, unit="tokens/s")
LARGER = Claim(what="a number that should be large", shape=Shape(above=1.0))


@dataclass
class Counted:
    """Runs as told, and remembers how often."""

    act: Callable[[Context], Outcome]
    times: int = 0
    seen: list[Context] = field(default_factory=list)

    def __call__(self, context: Context) -> Outcome:
        self.times += 1
        self.seen.append(context)
        return self.act(context)


def works(context: Context) -> Outcome:
    """A claim of each kind, a picture and a table."""
    (context.folder / "dot.svg").write_text(SVG)
    return Outcome(
        claims=(EQUAL.measured(2.05, "by hand"), LARGER.measured(1.5)),
        figures=(Figure(file="dot.svg", caption="A dot.", alt="nothing but a dot"),),
        notes=("A note with <angle> brackets.",),
        tables=(ResultTable(title="One row", columns=("a", "b"), rows=(("1", "<2>"),)),),
    )


def fails(context: Context) -> Outcome:
    """Never anything else."""
    raise RuntimeError("a wheel <came> off")


def is_interrupted(context: Context) -> Outcome:
    """As by Ctrl-C, with something half done."""
    (context.folder / "half.txt").write_text("half")
    raise KeyboardInterrupt


def experiment(name: str, act: Callable[[Context], Outcome], *needs: Need, **more) -> Experiment:
    """A record around a way to run."""
    return Experiment(
        name=name,
        title=f"Title of {name}",
        question="Does it run?",
        source="nobody, 1999",
        minutes=1,
        run=act,
        claims=(EQUAL, LARGER),
        needs=needs,
        **more,
    )


def run(out: Path, *experiments: Experiment, **options) -> list[Result]:
    """The results of a run into ``out``."""
    asked = Options(out=out, command="dspark reproduce all", settings=options.pop("settings", {}), **options)
    return run_experiments(experiments, asked, Console(quiet=True), lambda _: None)
