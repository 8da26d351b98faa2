"""The page of results, made of measurements and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from experiments.gpu.measure import StepTime
    from experiments.gpu.text import Agreement

DECODE_BAR = 1.25
"""A decode step of the 8B shape at batch 1 with graphs takes at most so many times the floor."""
VERIFY_BAR = 1.1
"""Verifying 8 tokens of one row takes at most so many times one token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bar and what was measured."""

    name: str
    value: float
    bar: float

    @property
    def passed(self) -> bool:
        """True if the value is not above the bar."""
        return self.value <= self.bar


def bars(steps: Sequence[StepTime]) -> list[Bar]:
    """The bars whose steps were measured, for every shape with graphs at batch 1."""
    found = {(s.shape, s.row_tokens): s for s in steps if s.graphs and s.batch_size == 1}
    rows = []
    for shape in dict.fromkeys(s.shape for s in steps):
        one, eight = found.get((shape, 1)), found.get((shape, 8))
        if one is not None:
            rows.append(
                Bar(
                    name=f"{shape}: decode step / (weight bytes / copy bandwidth)",
                    value=one.ratio,
                    bar=DECODE_BAR,
                )
            )
        if one is not None and eight is not None:
            value = eight.median_s / one.median_s
            rows.append(Bar(name=f"{shape}: pass of 8 tokens / of 1", value=value, bar=VERIFY_BAR))
    return rows


def page(
    machine: dict[str, str],
    bandwidth: float,
    steps: Sequence[StepTime],
    texts: Sequence[Agreement],
    sources: dict[str, str],
) -> str:
    """The Markdown page.

    Args:
        machine: what the figures belong to.
        bandwidth: bytes/s, read and written, of a copy.
        steps: step times.
        texts: agreement of the small model's text.
        sources: whose sizes a shape has, by its name.
    """
    lines = [
        "# Results on a GPU",
        "",
        "Written by `make gpu` (`python -m experiments.gpu`); every figure is a median of one run on:",
        "",
        *(f"- {key}: {value}" for key, value in machine.items()),
        f"- measured copy bandwidth: {bandwidth / 1e9:.0f} GB/s (bytes read plus bytes written)",
        "",
        "Weights are random, in bfloat16; shapes: "
        + "; ".join(f"{name} is that of {source}" for name, source in sources.items())
        + ". The floor is the bytes of the weights that a step reads over the copy bandwidth.",
        "",
        "## Bars",
        "",
        "| what | value | bar | reached |",
        "|---|---|---|---|",
        *(
            f"| {b.name} | {b.value:.3f} | <= {b.bar:g} | {'yes' if b.passed else 'NO'} |"
            for b in bars(steps)
        ),
        "",
        "## Step times",
        "",
        "| shape | graphs | batch | tokens a row | context | ms | floor ms | times the floor |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {s.shape} | {'yes' if s.graphs else 'no'} | {s.batch_size} | {s.row_tokens} | {s.context} | "
            f"{s.median_s * 1e3:.3f} | {s.floor_s * 1e3:.3f} | {s.ratio:.2f} |"
            for s in steps
        ),
        "",
        "## Text of SmolLM2-135M-Instruct, greedy",
        "",
        "Each path against the first of its dtype; where one parts, it has so many tokens in common.",
        "",
        "| path | prompts alike | first difference |",
        "|---|---|---|",
        *(
            f"| {t.path} | {t.same}/{t.num_prompts} | "
            f"{'none' if t.first_difference is None else f'after {t.first_difference} tokens'} |"
            for t in texts
        ),
    ]
    return "\n".join(lines) + "\n"
