"""``python -m experiments.bench``: every ratio whose two sides run here, in one table and bench.json."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from dspark.models.sources import resolve_source
from dspark.models.target import load_target
from dspark.policies import Fixed
from dspark.workload.prompts import PromptSpec, encode_prompts, load_prompts
from experiments.bench import contenders as sides
from experiments.bench import memory, policies
from experiments.bench.floor import measure_floor
from experiments.bench.measure import Measurement, machine, measure
from experiments.bench.ratios import Ratio, ratios, step_ratios
from experiments.bench.stepwise import take_turns


def main(argv: list[str] | None = None) -> int:
    """0 if every bar is reached, 1 if one is missed."""
    options = _parse(argv)
    console = Console()
    folder = resolve_source(options.target)
    target = load_target(folder, numerics="fast")
    contenders = [
        sides.engine(target, "engine, no drafter", with_drafter=False),
        sides.engine(target, "engine, n-gram 4", with_drafter=True, policy=Fixed(depth=4)),
        sides.transformers_generate(sides.transformers_model(folder)),
    ]
    prompts = _prompts(target, max(options.batch_sizes))
    floor = measure_floor(target)
    with Progress(console=console) as progress:
        task = progress.add_task("taking turns", total=len(options.batch_sizes) * options.repeats)
        turns = [
            take_turns(
                target,
                prompts[:batch_size],
                num_new=options.new_tokens,
                repeats=options.repeats,
                advance=lambda: progress.advance(task),
            )
            for batch_size in options.batch_sizes
        ]
        measurements = measure(
            contenders,
            prompts,
            batch_sizes=options.batch_sizes,
            num_new=options.new_tokens,
            repeats=options.repeats,
            progress=progress,
        )
    rows = [row for times in turns for row in step_ratios(times)] + ratios(measurements) + floor.ratios()
    used = memory.measure_memory(options.target) if memory.available() else None
    if used is None:
        console.print("left out: peak memory, which Linux alone tells in /proc")
    else:
        rows += used.ratios()
    _show(console, measurements, rows)
    decisions = policies.policy_times()
    policies.show(console, decisions)
    report = {
        "schema": 1,
        "machine": machine() | {"dtype": "float32", "target": options.target},
        "settings": {"new_tokens": options.new_tokens, "repeats": options.repeats},
        "measurements": [asdict(m) for m in measurements],
        "steps": [asdict(times) for times in turns],
        "floor": asdict(floor),
        "ratios": [asdict(r) | {"passed": r.passed} for r in rows],
        "memory": None if used is None else asdict(used),
        "policies": [asdict(d) | {"passed": d.passed} for d in decisions],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1))
    console.print(f"written to {options.out}")
    bars = [row.passed for row in rows if not row.ambition] + [row.passed for row in decisions]
    return 0 if all(bars) else 1


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments.bench", description=__doc__)
    parser.add_argument("--target", default="smollm2", help="hub id, folder, GGUF file, or smollm2")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--new-tokens", type=int, default=64, help="tokens a prompt is continued by")
    parser.add_argument("--repeats", type=int, default=5, help="interleaved repeats; medians are shown")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench/bench.json"))
    options = parser.parse_args(argv)
    if options.new_tokens < 2 or options.repeats < 1 or min(options.batch_sizes) < 1:
        parser.error("new-tokens must be >= 2, repeats and batch sizes >= 1")
    return options


def _prompts(target, count: int) -> list[list[int]]:
    prompts = load_prompts(PromptSpec(num_requests=count))
    return [list(ids) for ids in encode_prompts(prompts, target.tokenizer, max_context=target.max_context)]


def _show(console: Console, measurements: list[Measurement], rows: list[Ratio]) -> None:
    threads = torch.get_num_threads()
    table = Table(title=f"tokens/s, wall, float32, {threads} threads, medians")
    for name in ("side", "batch", "decode tokens/s", "end to end tokens/s", "tokens as plain"):
        table.add_column(name, justify="left" if name == "side" else "right")
    for m in measurements:
        table.add_row(
            m.side,
            str(m.batch_size),
            f"{m.decode_tokens_per_s:.1f}",
            f"{m.tokens_per_s:.1f}",
            f"{m.same_rows}/{m.batch_size}",
        )
    console.print(table)
    table = Table(title="ratios of medians of one run")
    for name in ("ratio", "batch", "value", "bar", "reached"):
        table.add_column(name, justify="left" if name == "ratio" else "right")
    for r in rows:
        bar = f"{'<=' if r.upper else '>='} {r.bar:g}{' (ambition)' * r.ambition}"
        table.add_row(r.name, str(r.batch_size), f"{r.value:.3f}", bar, "yes" if r.passed else "NO")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
