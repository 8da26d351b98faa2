"""The sizes that a profile measures, and its samples on disk: one line each, written as they come."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dspark.cost.profile import DraftPoint, PassPoint
from dspark.metrics.trace import JsonlWriter, drop_torn_line, read_jsonl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from dspark.config.profile import ProfileConfig

FILE_NAME = "samples.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSize:
    """A pass of the target: ``context`` cached tokens a row, ``tokens`` new ones over all rows."""

    rows: int
    tokens: int
    context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSize:
    """A step of the engine in which all rows draft to one depth."""

    rows: int
    depth: int


Size = PassSize | DraftSize


def pass_sizes(settings: ProfileConfig) -> tuple[list[PassSize], list[tuple[int, int]]]:
    """The passes to measure, and the pairs of rows and context that exceed ``max_cached_tokens``."""
    pairs = [(rows, context) for rows in settings.rows for context in settings.contexts]
    kept = [pair for pair in pairs if pair[0] * pair[1] <= settings.max_cached_tokens]
    sizes = [
        PassSize(rows=rows, tokens=tokens, context=context)
        for rows, context in kept
        for tokens in settings.tokens
        if tokens >= rows
    ]
    return sizes, [pair for pair in pairs if pair not in kept]


def draft_sizes(settings: ProfileConfig, *, has_drafter: bool) -> list[DraftSize]:
    """The steps to measure: depth 0 always, the others if there is a drafter."""
    depths = sorted({0, *(settings.depths if has_drafter else ())})
    return [DraftSize(rows=rows, depth=depth) for rows in settings.draft_rows for depth in depths]


class Samples:
    """What has been measured, in memory and on disk; a context manager.

    Args:
        folder: of the run; what an earlier start left in it counts.
        repeats: samples that are wanted of every size.
    """

    def __init__(self, folder: Path, *, repeats: int) -> None:
        path = folder / FILE_NAME
        drop_torn_line(path)
        self.repeats = repeats
        self._seconds: dict[Size, dict[int, tuple[float, ...]]] = defaultdict(dict)
        for line in read_jsonl(path):
            make, names = _KINDS[line.pop("kind")]
            repeat, seconds = line.pop("repeat"), tuple(line.pop(name) for name in names)
            self._seconds[make(**line)][repeat] = seconds
        self._writer = JsonlWriter(path)

    def __enter__(self) -> Samples:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def left(self, sizes: Iterable[Size]) -> Iterator[tuple[Any, int]]:
        """The sizes and the numbers of the repeats that are not measured yet."""
        for size in sizes:
            done = self._seconds.get(size, {})
            yield from ((size, repeat) for repeat in range(self.repeats) if repeat not in done)

    def add(self, size: Size, repeat: int, *seconds: float) -> None:
        """Keep a sample: the pass's seconds, or the drafter's and the other seconds of a step."""
        kind = "pass" if isinstance(size, PassSize) else "draft"
        named = dict(zip(_KINDS[kind][1], seconds, strict=True))
        self._writer.write({"kind": kind, **asdict(size), "repeat": repeat, **named})
        self._seconds[size][repeat] = seconds

    def passes(self, sizes: Iterable[PassSize]) -> tuple[PassPoint, ...]:
        """All samples of the passes."""
        return tuple(PassPoint(**asdict(size), seconds=self._columns(size)[0]) for size in sizes)

    def drafts(self, sizes: Iterable[DraftSize]) -> tuple[DraftPoint, ...]:
        """All samples of the steps."""
        points = []
        for size in sizes:
            draft_s, overhead_s = self._columns(size)
            points.append(DraftPoint(**asdict(size), draft_s=draft_s, overhead_s=overhead_s))
        return tuple(points)

    def _columns(self, size: Size) -> list[tuple[float, ...]]:
        """Each kind of seconds, by repeat."""
        return list(zip(*(seconds for _, seconds in sorted(self._seconds[size].items())), strict=True))


_KINDS: dict[str, tuple[type, tuple[str, ...]]] = {
    "pass": (PassSize, ("seconds",)),
    "draft": (DraftSize, ("draft_s", "overhead_s")),
}
"""The size that a line's kind has, and the seconds in it."""
