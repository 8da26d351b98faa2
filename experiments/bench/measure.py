"""Interleaved repeats of all contenders, and their medians."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import torch
import transformers

from experiments.bench.contenders import Contender, Tokens, timed

if TYPE_CHECKING:
    from rich.progress import Progress


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One side at one batch size; seconds of every repeat are kept."""

    side: str
    batch_size: int
    num_new: int
    long_s: list[float]  # time for num_new tokens a row, prefill included
    short_s: list[float]  # time for 1 token a row
    same_rows: int  # rows whose tokens equal the first side's

    @property
    def decode_s(self) -> float:
        """Median over repeats of the time for the tokens after each row's first."""
        return median(long - short for long, short in zip(self.long_s, self.short_s, strict=True))

    @property
    def decode_tokens_per_s(self) -> float:
        """(tokens - one a row) / (time for all - time for one a row), prefix caches off."""
        return self.batch_size * (self.num_new - 1) / self.decode_s

    @property
    def tokens_per_s(self) -> float:
        """All new tokens over the whole time."""
        return self.batch_size * self.num_new / median(self.long_s)


def measure(
    contenders: list[Contender],
    prompts: Tokens,
    *,
    batch_sizes: list[int],
    num_new: int,
    repeats: int,
    progress: Progress,
    warm_up: int = 2,
) -> list[Measurement]:
    """One measurement a side and batch size.

    Sides alternate within a repeat and their order rotates between repeats, so that a slow moment
    of the machine does not fall on one side. Each side runs once before, untimed, for ``warm_up``
    tokens a row.
    """
    results = []
    task = progress.add_task("measuring", total=len(batch_sizes) * (repeats + 1) * len(contenders))
    for batch_size in batch_sizes:
        chosen = prompts[:batch_size]
        seconds: dict[str, tuple[list[float], list[float]]] = {c.name: ([], []) for c in contenders}
        texts: dict[str, Tokens] = {}
        for contender in contenders:
            contender.generate(chosen, warm_up)
            progress.advance(task)
        for repeat in range(repeats):
            turn = repeat % len(contenders)
            for contender in contenders[turn:] + contenders[:turn]:
                long, texts[contender.name] = timed(contender, chosen, num_new)
                short, _ = timed(contender, chosen, 1)
                seconds[contender.name][0].append(long)
                seconds[contender.name][1].append(short)
                progress.advance(task)
        plain = texts[contenders[0].name]
        for name, (long_s, short_s) in seconds.items():
            same = sum(a == b for a, b in zip(texts[name], plain, strict=True))
            results.append(
                Measurement(
                    side=name,
                    batch_size=batch_size,
                    num_new=num_new,
                    long_s=long_s,
                    short_s=short_s,
                    same_rows=same,
                )
            )
    return results


def machine() -> dict[str, str | int]:
    """What the figures belong to."""
    return {
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }
