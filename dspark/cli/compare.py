"""`dspark compare`: policies × batch sizes on the same prompts, repeats interleaved.

A cell is one policy at one batch size in one repeat. Policies take turns in being first, so that a
machine that slows down or speeds up favours none of them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dspark.cli.launch import EXIT_BUG, Invocation, launch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dspark.cli.session import Session
    from dspark.config.schema import CompareConfig, Component

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One measurement of a comparison."""

    policy: str
    batch_size: int
    repeat: int

    @property
    def name(self) -> str:
        """What it is called in files."""
        return f"{self.group}/repeat {self.repeat}"

    @property
    def group(self) -> str:
        """Policy and batch size, whatever the repeat."""
        return f"{self.policy}/batch {self.batch_size}"


def command(arguments: Sequence[str]) -> int:
    """The exit code of `dspark compare ARGUMENTS`."""
    return launch("compare", arguments, _job)


def plan_cells(policies: Sequence[str], batch_sizes: Sequence[int], repeats: int) -> list[Cell]:
    """The cells in the order they run; the first policy moves on by one with every batch size."""
    cells, turn = [], 0
    for repeat in range(repeats):
        for batch_size in batch_sizes:
            first = turn % len(policies)
            order = [*policies[first:], *policies[:first]]
            cells += [Cell(policy=policy, batch_size=batch_size, repeat=repeat) for policy in order]
            turn += 1
    return cells


def _job(invocation: Invocation) -> int:
    # these import torch, which commands that only explain themselves must not wait for
    from dspark.config.schema import parse_config

    config = parse_config(invocation.plain)
    if config.compare is None or config.policy is not None:
        raise ValueError("`compare` takes policies as compare.policies=[...], and no policy=NAME")
    policies, baseline = _policies(config.compare, invocation)
    from dspark.config.check import prepare

    prepared = prepare(config, policies)
    from dspark.cli.session import open_session

    with open_session(invocation, prepared) as session:
        try:
            _measure_cells(session, config.compare, baseline)
        finally:  # what has been measured is readable whatever happened
            _write_summary(session, config.compare, baseline, complete=False)
        return _finish(session, config.compare, baseline)


def _policies(config: CompareConfig, invocation: Invocation) -> tuple[dict[str, Component], str | None]:
    """Components by label, the baseline among them, and the baseline's label.

    Raises:
        ValueError: an entry is wrong, or two entries are the same policy.
    """
    from dspark.config.compose import compose_policy, parse_entry
    from dspark.config.policies import listed_policies
    from dspark.config.schema import component

    entries = [parse_entry(text) for text in config.policies]
    found = listed_policies(entries, invocation.search_path, "compare.policies")
    if config.baseline is None:
        return found, None
    label, node = compose_policy(parse_entry(config.baseline), invocation.search_path)
    if label not in found:
        logger.info("added the policy %s, which ratios refer to (compare.baseline=null leaves it out)", label)
        found = {label: component(node, "compare.baseline"), **found}
    return found, label


def _measure_cells(session: Session, config: CompareConfig, baseline: str | None) -> None:
    """Run the cells that have not run yet; each is on disk as soon as it ends."""
    from dspark.cli.console import CellProgress
    from dspark.metrics.tally import Tally

    requests, run_dir = session.prepared.requests, session.run_dir
    cells = plan_cells(list(session.prepared.policies), config.batch_sizes, config.repeats)
    run_dir.drop_unfinished_cells()
    finished = run_dir.finished_cells()
    progress = CellProgress(session.console, num_cells=len(cells), num_requests=len(requests))
    if len(finished) < len(cells):
        session.warm_up(min(config.batch_sizes))
    with progress.shown():
        for number, cell in enumerate(cells, start=1):
            if cell.name in finished:
                progress.skip(len(requests))
                continue
            shown = f"{cell.policy}, batch {cell.batch_size}"
            progress.start_cell(number, shown)
            tally = Tally()
            session.measure(
                cell.name,
                policy=cell.policy,
                batch_size=cell.batch_size,
                requests=requests,
                tally=tally,
                progress=progress,
                group=cell.group,
            )
            completions = list(run_dir.completions(cell.name, requests).values())
            row = session.row(cell.policy, cell.batch_size, tally, completions)
            run_dir.write_cell(cell.name, {**row, "repeat": cell.repeat})
            _write_summary(session, config, baseline, complete=False)
            progress.end_cell(shown)


def summary_rows(
    cells: Mapping[str, Mapping[str, Any]],
    policies: Sequence[str],
    batch_sizes: Sequence[int],
    baseline: str | None,
) -> list[dict[str, Any]]:
    """One row a policy and batch size that has run, with ratios to the baseline at the same batch size."""
    from dspark.metrics.summary import over_repeats

    repeats: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in sorted(cells.values(), key=lambda row: row["repeat"]):
        repeats.setdefault((row["policy"], row["batch_size"]), []).append(row)
    return [
        over_repeats(repeats[policy, size], repeats.get((baseline or "", size)))
        for size in batch_sizes
        for policy in policies
        if (policy, size) in repeats
    ]


def _write_summary(
    session: Session, config: CompareConfig, baseline: str | None, *, complete: bool, **more: Any
) -> list[dict[str, Any]]:
    """The rows that ``summary.json`` now holds."""
    from dspark.cli.provenance import command_line
    from dspark.metrics.summary import SUMMARY_SCHEMA

    cells = session.run_dir.finished_cells()
    rows = summary_rows(cells, list(session.prepared.policies), config.batch_sizes, baseline)
    session.run_dir.write_summary(
        {
            "schema": SUMMARY_SCHEMA,
            "command": command_line(session.invocation),
            "complete": complete,
            "baseline": baseline,
            "rows": rows,
            **more,
        }
    )
    return rows


def _finish(session: Session, config: CompareConfig, baseline: str | None) -> int:
    """Table, figure, and what became of the tokens; 1 where ``invariant`` numerics were not."""
    from dspark.analysis.figures import draw_throughput
    from dspark.analysis.report import summary_table
    from dspark.cli.agreement import compare_tokens
    from dspark.cli.console import stdout
    from dspark.metrics.time_fields import time_field

    cells = plan_cells(list(session.prepared.policies), config.batch_sizes, config.repeats)
    agreement = compare_tokens(session, cells, baseline)
    rows = _write_summary(session, config, baseline, complete=True, tokens=agreement.record)
    path = session.run_dir.path
    figure = draw_throughput(
        rows,
        path / "figures" / f"{time_field('tokens_per_s', is_modelled=session.is_modelled)}.png",
        title=f"{session.target.name}, {rows[0]['num_requests']} requests of {rows[0]['workload']}, "
        f"drafter {rows[0]['drafter']}",
        baseline=baseline,
    )
    session.tracker.summarise({f"{row['policy']}/batch {row['batch_size']}": row for row in rows}, [figure])
    console = stdout()
    console.print(summary_table(rows))
    for line in agreement.lines:
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"figure: {figure}\nsummary: {path / 'summary.json'}", soft_wrap=True)
    return EXIT_BUG if agreement.is_broken else 0
