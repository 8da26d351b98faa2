"""The `dspark` commands of the experiment, and what their folders say."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import hydra

from dspark.config.build import build_policy
from dspark.config.compose import compose_policy, parse_entry
from dspark.config.paths import config_dir
from dspark.config.schema import component
from dspark.metrics.trace import read_jsonl, step_from_json
from experiments.commands import kept

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from dspark.policies.base import Policy
    from dspark.types import StepRecord


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Where results go, and what is the same in all commands.

    Greedy, because every depth then has to give the same text, under every rule.
    """

    out: Path
    settings: Sequence[str]  # of every command: target, drafter, workload, sampling, engine

    def record(self, depth: int) -> Path:
        """The file of a trace with drafts of ``depth`` at every position."""
        return kept(self._arguments("record", f"record.depth={depth}"), self.out / "trace") / "trace.parquet"

    def profile(self, more: Sequence[str]) -> Path:
        """The file of what steps cost here."""
        arguments = self._arguments("profile", "profile.path=null", *more)
        return kept(arguments, self.out / "profile") / "profile.json"

    def compare(
        self, policies: Sequence[str], batch_sizes: Sequence[int], *, repeats: int, profile: Path
    ) -> Path:
        """The folder of the live runs."""
        entries = ",".join(f"'{policy}'" for policy in policies)
        arguments = self._arguments(
            "compare",
            *(f"compare.policies=[{entries}]", f"compare.batch_sizes={list(batch_sizes)}"),
            *(f"compare.repeats={repeats}", "compare.baseline=null", "cost=profile", f"cost.path={profile}"),
        )
        return kept(arguments, self.out / "live")

    def _arguments(self, command: str, *more: str) -> list[str]:
        return [command, "verification=greedy", "tracker=none", *more, *self.settings]


@dataclass(frozen=True, kw_only=True)
class LiveCell:
    """A policy at a batch size, in every repeat of the comparison."""

    names: list[str]
    decode_tokens_per_s: list[float | None]  # wall; None: no step without prefill

    @property
    def median_tokens_per_s(self) -> float | None:
        """Median over repeats; None if one has none."""
        known = [speed for speed in self.decode_tokens_per_s if speed is not None]
        return median(known) if known else None


def live_cells(folder: Path) -> dict[tuple[str, int], LiveCell]:
    """What the comparison measured, by policy and batch size."""
    found: dict[tuple[str, int], LiveCell] = {}
    for item in read_jsonl(folder / "cells.jsonl"):
        row: Mapping[str, Any] = item["row"]
        cell = found.setdefault(
            (row["policy"], row["batch_size"]), LiveCell(names=[], decode_tokens_per_s=[])
        )
        cell.names.append(item["cell"])
        cell.decode_tokens_per_s.append(row["decode_tokens_per_s"])
    return found


def live_steps(folder: Path) -> dict[str, list[StepRecord]]:
    """The steps of each cell, by its name."""
    steps: dict[str, list[StepRecord]] = {}
    for item in read_jsonl(folder / "steps.jsonl"):
        steps.setdefault(item["cell"], []).append(step_from_json(item))
    return steps


def named_policies(texts: Sequence[str]) -> dict[str, Policy]:
    """The policies of entries such as ``fixed 4``, by the labels that `dspark compare` gives them.

    Raises:
        ValueError: an entry is wrong, or two are one policy.
    """
    found: dict[str, Policy] = {}
    with hydra.initialize_config_dir(str(config_dir()), version_base="1.3"):
        for text in texts:
            label, node = compose_policy(parse_entry(text))
            if label in found:
                raise ValueError(f"--policies names {label!r} twice")
            found[label] = build_policy(component(node, f"policy {label!r}"))
    return found
