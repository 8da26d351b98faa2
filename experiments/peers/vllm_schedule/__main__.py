"""``python -m experiments.peers.vllm_schedule``: a table tuned on this machine, in vLLM's CPU build.

Records, profiles, tunes and exports with dspark; starts vLLM with the exported object, with each fixed
depth and without speculation; measures all at every batch size, and holds what replay foretold against it.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.progress import Progress

from dspark.cli import console as consoles
from dspark.cli.launch import EXIT_INTERRUPTED
from dspark.models.sources import resolve_source
from dspark.models.target import load_target
from dspark.workload.prompts import encode_prompts, load_prompts
from experiments.bench.measure import machine
from experiments.peers import setup, vllm_sides
from experiments.peers.__main__ import row_room
from experiments.peers.vllm_schedule import exported
from experiments.peers.vllm_schedule.chart import draw
from experiments.peers.vllm_schedule.curve import Engine, measure
from experiments.peers.vllm_schedule.options import Options, parse
from experiments.peers.vllm_schedule.report import PLAIN, SCHEMA, TUNED, rows_of, table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from rich.console import Console

    from dspark.policies.base import Policy
    from experiments.bench.contenders import Tokens
    from experiments.peers.vllm_schedule.exported import Exported
    from experiments.peers.worker import Worker

DONE, REFUSED, DIED = 0, 2, 3
KV_SPACE_GIB = 1
"""Of each engine, since all of them are loaded together."""


def main(argv: list[str] | None = None) -> int:
    """0 if every side was measured, 2 for bad input, 3 if a vLLM process failed; the rest is there then."""
    try:
        return run(parse(argv), consoles.stdout())
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def run(options: Options, console: Console) -> int:
    """Measure, tell, and write ``vllm_schedule.json`` and ``vllm_schedule.png``; the exit code.

    Raises:
        ValueError: vLLM's environment is missing, or a `dspark` command was refused.
    """
    if not setup.is_installed():
        raise ValueError(f"vLLM's own environment is not set up: run {setup.COMMAND}")
    found = exported.export(options)
    configs, policies = sides_of(found, options)
    folder = resolve_source(options.target)
    prompts, max_context = _prompts(folder, options, found)
    workers: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        engines = []
        for name, config in configs.items():
            settings = {
                "model": str(folder),
                "max_rows": max(options.batch_sizes),
                "max_context": row_room(prompts, options.new_tokens, max_context),
                "compiled": options.mode == "compiled",
                "speculative": config,
            }
            engines.append(Engine(name, _starter(name, settings, options, workers, console)))
            stack.callback(engines[-1].close)
        with Progress(console=consoles.stderr()) as progress:
            measurements = measure(
                engines,
                prompts,
                batch_sizes=options.batch_sizes,
                num_new=options.new_tokens,
                repeats=options.repeats,
                progress=progress,
            )
    modelled = {
        (name, size): found.modelled_decode_tokens_per_s(policy, size)
        for name, policy in policies.items()
        for size in options.batch_sizes
    }
    rows = rows_of(list(policies), options.batch_sizes, measurements, modelled)
    findings = [finding for engine in engines for finding in engine.findings]
    content = {
        "schema": SCHEMA,
        "machine": machine() | {"dtype": "float32"},
        "settings": options.record(),
        "schedule": found.schedule.to_json(),
        "exported": found.config,
        "speculative_configs": configs,
        "workers": workers,
        "rows": rows,
        "findings": [asdict(finding) for finding in findings],
    }
    path = options.out / "vllm_schedule.json"
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    title = f"vLLM {options.mode}, n-gram drafts, {options.threads} threads, decode tokens/s"
    figure = draw(rows, path.with_suffix(".png"), title=title)
    console.print(table(rows, title))
    if found.config is None:
        console.print(f"left out: {TUNED}: its depths are all 0, which is no speculation")
    for finding in findings:
        at = "at its start" if finding.batch_size is None else f"at batch size {finding.batch_size}"
        console.print(f"{finding.side} failed {at}: {finding.said}", markup=False, soft_wrap=True)
    console.print(f"written to {path} and {figure}", markup=False, soft_wrap=True)
    return DIED if findings else DONE


def sides_of(found: Exported, options: Options) -> tuple[dict[str, dict[str, Any] | None], dict[str, Policy]]:
    """By the side's name: vLLM's ``--speculative-config``, and the policy that is replayed for it.

    The exported object goes in as it is; only what vLLM's n-gram drafts are looked up by, which a schedule
    does not know, stands beside it.
    """
    configs: dict[str, dict[str, Any] | None] = {}
    policies: dict[str, Policy] = {}
    for depth, policy in exported.fixed(options.depths).items():
        name = f"fixed {depth}" if depth else PLAIN
        configs[name], policies[name] = vllm_sides.ngram(depth) if depth else None, policy
    if found.config is not None:
        configs[TUNED], policies[TUNED] = found.config | vllm_sides.LOOKUP, found.tuned()
    return configs, policies


def _prompts(folder: Path, options: Options, found: Exported) -> tuple[Tokens, int]:
    """Token ids of the prompts, and the target's context.

    Raises:
        ValueError: they are not those of the trace, or do not fit with their continuation.
    """
    target = load_target(folder, numerics="fast", device="cpu")
    loaded = load_prompts(options.prompt_spec)
    prompts = [list(ids) for ids in encode_prompts(loaded, target.tokenizer, max_context=target.max_context)]
    sizes = [len(ids) for ids in prompts]
    if sizes != found.trace.prompt_tokens.tolist():
        raise ValueError(f"the trace is of other prompts: remove {options.out / 'trace'}")
    if set(found.trace.output_tokens.tolist()) != {options.new_tokens}:
        raise ValueError(
            f"--new-tokens must leave every row within the target's context of {target.max_context}, got a "
            f"row of {max(sizes) + options.new_tokens}: lower it or take shorter prompts"
        )
    return prompts, target.max_context


def _starter(
    name: str,
    settings: Mapping[str, Any],
    options: Options,
    workers: dict[str, dict[str, Any]],
    console: Console,
) -> Callable[[int], Worker]:
    """What loads the side's engine; it keeps what the worker says of itself."""

    def start(number: int) -> Worker:
        slow = ", which compiles for minutes" if settings["compiled"] else ""
        console.print(f"starting vLLM, {name}{slow}")
        worker, workers[name] = vllm_sides.start_engine(
            name,
            settings,
            num_threads=options.threads,
            logs=options.out / "logs" / f"start_{number}",
            kv_space_gib=KV_SPACE_GIB,
        )
        return worker

    return start


if __name__ == "__main__":
    sys.exit(main())
