"""Running totals of one run: what its summary needs, in memory that does not grow with its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dspark.metrics.definitions import Totals, step_totals

if TYPE_CHECKING:
    from collections.abc import Collection

    from dspark.types import StepRecord


class Tally:
    """Adds up steps as they come; ``totals`` and ``per_request`` are the sums so far."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.is_modelled = False  # of the steps so far
        self._emitted: dict[str, int] = {}
        self._row_steps: dict[str, int] = {}

    def add(self, step: StepRecord) -> None:
        """Count a step.

        Raises:
            ValueError: its seconds are modelled and those of an earlier step are not, or the other way.
        """
        if step.is_modelled != self.is_modelled and self.totals.num_steps > 0:
            raise ValueError("seconds of the wall and of a cost model do not add up: count each in a tally")
        self.is_modelled = step.is_modelled
        self.totals = self.totals + step_totals(step)
        for row in step.rows:
            if row.drafted > 0:
                self._emitted[row.request_id] = self._emitted.get(row.request_id, 0) + row.emitted
                self._row_steps[row.request_id] = self._row_steps.get(row.request_id, 0) + 1

    @property
    def per_request(self) -> Collection[tuple[int, int]]:
        """Emitted tokens and row-steps of each request, over its row-steps that drafted."""
        return [(self._emitted[name], self._row_steps[name]) for name in self._emitted]
