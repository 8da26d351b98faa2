"""What the commands that run a target share: folder, tracker, loaded model, one measured cell."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from transformers.utils import logging as hf_logging

from dspark.cli.console import CellProgress, shown_messages, stderr
from dspark.cli.launch import EXIT_BUG, EXIT_INTERRUPTED
from dspark.cli.profile_match import warn_of_other_profile
from dspark.cli.provenance import command_line, provenance
from dspark.cli.rundir import RunDir, open_run_dir
from dspark.config.build import build_clock, load_draft_model, load_target, load_trained_drafter
from dspark.config.schema import Component, DraftModelConfig
from dspark.engine.engine import Engine
from dspark.metrics.summary import measured
from dspark.metrics.tracker import NoTracker, Tracker, WandbTracker
from dspark.models.target import resolve_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from dspark.cli.launch import Invocation
    from dspark.config.check import Prepared
    from dspark.config.schema import TrackerConfig
    from dspark.drafters.base import Drafter
    from dspark.metrics.tally import Tally
    from dspark.models.target import HFTarget
    from dspark.types import Completion, Request, StepRecord

    OnStep = Callable[[Engine, StepRecord], None]

WARM_UP_REQUESTS, WARM_UP_TOKENS = 2, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An opened run with its model loaded."""

    invocation: Invocation
    prepared: Prepared
    run_dir: RunDir
    tracker: Tracker
    console: Console
    target: HFTarget
    drafter: Drafter | None

    @property
    def is_modelled(self) -> bool:
        """True where the seconds are the cost model's."""
        return self.prepared.config.engine.clock == "modelled"

    def engine(self, policy: str, batch_size: int) -> Engine:
        """A new engine for the policy of that label."""
        prepared, settings = self.prepared, self.prepared.config.engine
        return Engine(
            self.target,
            self.drafter,
            prepared.policies[policy],
            verification=prepared.verification,
            max_batch_size=batch_size,
            max_tokens_per_row=settings.max_tokens_per_row,
            prefill_chunk=settings.prefill_chunk,
            cost=prepared.cost,
            clock=build_clock(settings, prepared.cost),
            seed=settings.seed,
        )

    def warm_up(self, batch_size: int) -> None:
        """Run a few tokens under every policy, so that no measurement pays for first calls.

        A modelled clock charges nothing for them, so nothing is run.
        """
        if self.is_modelled:
            return
        requests = [
            replace(request, arrival_s=0.0, params=_shortened(request))
            for request in self.prepared.requests[:WARM_UP_REQUESTS]
        ]
        for policy in self.prepared.policies:
            for _ in self.engine(policy, batch_size).run(requests):
                pass

    def measure(
        self,
        cell: str,
        *,
        policy: str,
        batch_size: int,
        requests: Sequence[Request],
        tally: Tally,
        progress: CellProgress,
        group: str = "",
        on_step: OnStep | None = None,
    ) -> None:
        """Run the requests, and write, count and show every step after its time has been taken.

        ``on_step`` comes first, so that a request whose end is on disk was seen whole.
        """
        engine = self.engine(policy, batch_size)
        for step in engine.run(requests):
            if on_step is not None:
                on_step(engine, step)
            self.run_dir.write_step(cell, step)
            tally.add(step)
            self.tracker.step(group, step)
            progress.step(step)
        self.tracker.flush()

    def row(
        self, policy: str, batch_size: int, tally: Tally, completions: Sequence[Completion]
    ) -> dict[str, Any]:
        """The summary row of a measurement; of a modelled one, with the cost model it holds for."""
        return {
            "policy": policy,
            "drafter": drafter_label(self.prepared),
            "verification": self.prepared.verification.name,
            "lossless": self.prepared.verification.lossless,
            "batch_size": batch_size,
            "workload": workload_label(self.prepared),
            "target": self.target.name,
            "numerics": self.target.numerics,
            "temperature": self.prepared.config.sampling.temperature,
            **({"cost_model": cost_label(self.prepared.config.cost)} if self.is_modelled else {}),
            **measured(
                tally,
                completions,
                num_parameters=self.target.num_parameters,
                weight_bytes=self.target.weight_bytes,
                cache_bytes_per_token=self.target.cache_shape.bytes_per_token(self.target.dtype),
                latency_bound_s=self.prepared.config.goodput.as_pair,
                is_modelled=self.is_modelled,
            ),
        }


@contextlib.contextmanager
def open_session(invocation: Invocation, prepared: Prepared) -> Iterator[Session]:
    """A session whose folder and tracker are closed whatever happens; an interrupt says how to go on."""
    config, console = prepared.config, stderr()
    hf_logging.disable_progress_bar()  # loading takes a second, and the bars are ours
    device = resolve_device(config.target.device)
    num_threads = config.engine.num_threads or torch.get_num_threads()
    origin = provenance(invocation, device=device, num_threads=num_threads)
    with shown_messages(console), open_run_dir(invocation.run_dir, origin, resume=config.resume) as run_dir:
        tracker = build_tracker(config.tracker, run_dir.path, {**invocation.plain, "provenance": origin})
        exit_code = EXIT_BUG
        try:
            target = load_target(config, prepared.target_folder)
            warn_of_other_profile(config.cost, target)
            yield Session(
                invocation=invocation,
                prepared=prepared,
                run_dir=run_dir,
                tracker=tracker,
                console=console,
                target=target,
                drafter=_drafter(prepared, target),
            )
            exit_code = 0
        except KeyboardInterrupt:
            exit_code = EXIT_INTERRUPTED
            print(f"\ndspark: interrupted; go on with: {resume_command(invocation)}", file=sys.stderr)
            raise
        finally:
            tracker.close(exit_code)


def build_tracker(config: TrackerConfig, folder: Path, told: dict[str, Any]) -> Tracker:
    """The tracker of a run; `auto` is online where W&B has a key in the environment."""
    if config.kind == "none":
        return NoTracker()
    mode = config.mode
    if mode == "auto":
        wanted = os.environ.get("WANDB_MODE") or ("online" if os.environ.get("WANDB_API_KEY") else "offline")
        if wanted in ("disabled", "dryrun"):
            return NoTracker()
        mode = "online" if wanted == "online" else "offline"
    return WandbTracker(
        folder,
        project=config.project,
        name=config.name,
        tags=config.tags,
        mode=cast("Literal['online', 'offline']", mode),
        may_fall_back=config.mode == "auto",
        config=told,
    )


def drafter_label(prepared: Prepared) -> str:
    """The drafter's name in tables."""
    config = prepared.config.drafter
    if not isinstance(config, Component):
        return config.source or "self"
    if config.target is None:
        return "none"
    return config.target.rpartition(".")[2].removesuffix("Drafter").lower()


def cost_label(config: Component) -> str:
    """The cost model's name in tables: its kind, and what its settings name, such as "published NAME"."""
    kind = (config.target or "none").rpartition(".")[2].removesuffix("Cost").removesuffix("_cost").lower()
    return " ".join([kind, *(str(value) for value in config.settings.values() if isinstance(value, str))])


def workload_label(prepared: Prepared) -> str:
    """The workload's name in tables."""
    path = prepared.config.workload.prompts.path
    return "builtin" if path is None else path.rstrip("/").rpartition("/")[2]


def _drafter(prepared: Prepared, target: HFTarget) -> Drafter | None:
    config = prepared.config.drafter
    if isinstance(config, Component):
        return prepared.drafter
    assert prepared.draft_folder is not None, "a drafter with weights without a folder"
    if isinstance(config, DraftModelConfig):
        return load_draft_model(config, prepared.draft_folder, target)
    return load_trained_drafter(config, prepared.draft_folder, target)


def _shortened(request: Request) -> Any:
    num_tokens = min(WARM_UP_TOKENS, request.params.max_new_tokens)
    return replace(request.params, max_new_tokens=num_tokens, min_new_tokens=0)


def resume_command(invocation: Invocation) -> str:
    """The command with the folder and resume=true, once each; of a sweep, the interrupted job's."""
    is_sweep = any(word in ("-m", "--multirun") for word in invocation.arguments)
    words = invocation.overrides if is_sweep else invocation.arguments
    kept = [word for word in words if not word.startswith(("resume=", "hydra.run.dir="))]
    again = replace(invocation, arguments=(*kept, f"hydra.run.dir={invocation.run_dir}", "resume=true"))
    return command_line(again)
