"""``python -m experiments.peers``: dspark, transformers and vLLM's CPU build side by side in one run.

All sides continue the same prompts by the same number of tokens, greedily, in float32, with the
same model folder and number of threads, and end tokens are ignored. They take turns.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from rich.progress import Progress

from dspark.cli import console as consoles
from dspark.models.sources import resolve_source
from dspark.models.target import load_target
from dspark.workload.prompts import encode_prompts, load_prompts
from experiments.bench.measure import Measurement, machine, measure
from experiments.peers import setup, vllm_sides
from experiments.peers.chart import draw_bars
from experiments.peers.comparison import compare
from experiments.peers.options import TRANSFORMERS, Options, parse
from experiments.peers.report import LeftOut, report, show, show_left_out
from experiments.peers.sides import Family, Side, check_assistant, dspark_sides, transformers_sides
from experiments.peers.worker import WorkerError

if TYPE_CHECKING:
    from rich.console import Console

    from dspark.models.target import HFTarget
    from experiments.bench.contenders import Tokens

ROOM_STEP = 512
REACHED, MISSED, REFUSED, DIED = 0, 1, 2, 3


@dataclass(frozen=True, kw_only=True)
class Lineup:
    """All sides, what the workers among them say of themselves, and who could not come."""

    sides: list[Side]
    workers: dict[str, dict[str, Any]]
    left_out: list[LeftOut]


def main(argv: list[str] | None = None) -> int:
    """0 if every bar is reached, 1 if one is missed, 2 for bad input, 3 if a worker died."""
    try:
        return run(parse(argv), consoles.stdout())
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except WorkerError as error:
        print(f"error: {error}", file=sys.stderr)
        return DIED


def run(options: Options, console: Console) -> int:
    """Measures, shows, and writes ``peers.json`` and ``peers.png``; the exit code."""
    torch.set_num_threads(options.threads)
    with ExitStack() as stack:
        lineup, prompts = line_up(options, console, stack)
        with Progress(console=consoles.stderr()) as progress:
            measurements = measure_all(lineup.sides, prompts, options, progress)
    families = {side.contender.name: side.family for side in lineup.sides}
    comparisons = compare(measurements, families)
    title = f"tokens/s, wall, float32, {options.threads} threads, medians of {options.repeats}"
    show(console, measurements, comparisons, title=title)
    show_left_out(console, lineup.left_out)
    content = report(
        measurements,
        families,
        comparisons,
        lineup.left_out,
        machine=machine() | {"dtype": "float32"},
        settings=options.record(),
        workers=lineup.workers,
    )
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "peers.json"
    path.write_text(json.dumps(content, indent=1))
    figure = draw_bars(measurements, families, options.out / "peers.png", title=title)
    console.print(f"written to {path} and {figure}")
    return REACHED if all(c.passed for c in comparisons) else MISSED


def line_up(options: Options, console: Console, stack: ExitStack) -> tuple[Lineup, Tokens]:
    """Every side, loaded, and the prompts. The stack closes what has to be closed."""
    left_out = missing(options.vllm_modes)
    show_left_out(console, left_out)
    folder = resolve_source(options.target)
    assistant = resolve_source(options.assistant) if options.assistant else None
    if assistant is not None:
        check_assistant(folder, assistant)
    target = load_target(folder, numerics="fast", device="cpu")
    prompts = encoded_prompts(options, target)
    sides = dspark_sides(target, options.policy)
    if TRANSFORMERS in options.peers:
        sides += transformers_sides(folder, assistant)
    workers = {}
    for mode in options.vllm_modes if not left_out else ():
        slow = ", which compiles for minutes" if vllm_sides.MODES[mode]["compiled"] else ""
        console.print(f"starting {mode}{slow}")
        worker, workers[mode] = vllm_sides.start(
            mode,
            folder,
            max_rows=max(options.batch_sizes),
            max_context=row_room(prompts, options.new_tokens, target.max_context),
            num_threads=options.threads,
            logs=options.out,
        )
        stack.callback(worker.close)
        family = Family.VLLM_EAGER if mode == vllm_sides.EAGER else Family.VLLM_COMPILED
        sides.append(Side(contender=vllm_sides.contender(worker), family=family))
    return Lineup(sides=sides, workers=workers, left_out=left_out), prompts


def encoded_prompts(options: Options, target: HFTarget) -> Tokens:
    """Token ids of as many prompts as the largest batch has rows.

    Raises:
        ValueError: a prompt and its continuation do not fit the target's context.
    """
    loaded = load_prompts(options.prompt_spec)
    prompts = [list(ids) for ids in encode_prompts(loaded, target.tokenizer, max_context=target.max_context)]
    needed = max(map(len, prompts)) + options.new_tokens
    if needed > target.max_context:
        raise ValueError(
            f"--new-tokens must leave every row within the target's context of {target.max_context}, "
            f"got a row of {needed}: lower it or take shorter prompts"
        )
    return prompts


def row_room(prompts: Tokens, new_tokens: int, max_context: int) -> int:
    """Tokens of the longest row, rounded up: what is compiled for one set of prompts then serves others."""
    needed = max(map(len, prompts)) + new_tokens
    return min(max_context, -(-needed // ROOM_STEP) * ROOM_STEP)


def missing(modes: list[str]) -> list[LeftOut]:
    """The vLLM sides, if vLLM's environment is not there."""
    if setup.is_installed():
        return []
    because = "vLLM's own environment is not set up"
    return [LeftOut(side=mode, because=because, command=setup.COMMAND) for mode in modes]


def measure_all(
    sides: list[Side], prompts: Tokens, options: Options, progress: Progress
) -> list[Measurement]:
    """All sides at all batch sizes that they can do, each warmed up by a whole run."""
    measurements = []
    for batch_size in options.batch_sizes:
        measurements += measure(
            [side.contender for side in sides if side.can(batch_size)],
            prompts,
            batch_sizes=[batch_size],
            num_new=options.new_tokens,
            repeats=options.repeats,
            progress=progress,
            warm_up=options.new_tokens,
        )
    return measurements


if __name__ == "__main__":
    sys.exit(main())
