"""``python -m experiments.gpu``: step times of random 1-8B shapes in bfloat16, and text, on a CUDA device."""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

import torch
import transformers
from rich.console import Console
from rich.progress import Progress

from dspark.models.sources import resolve_source
from dspark.models.target import resolve_device
from dspark.workload.prompts import PromptSpec, encode_prompts, load_prompts
from experiments.gpu.measure import StepTime, copy_bandwidth, step_seconds
from experiments.gpu.report import bars, page
from experiments.gpu.shapes import SHAPES, Shape, random_target
from experiments.gpu.text import agreements

COPY_BYTES = 1 << 30


def main(argv: list[str] | None = None) -> int:
    """0 if every bar is reached, 1 if one is missed, 2 where there is no CUDA device."""
    options = _parse(argv)
    console, errors = Console(), Console(stderr=True)
    try:
        device = resolve_device("cuda")
    except ValueError as error:
        errors.print(f"error: {error}", markup=False, soft_wrap=True)
        return 2
    bandwidth = copy_bandwidth(device, num_bytes=COPY_BYTES)
    shapes = [shape for shape in SHAPES if shape.name in options.shapes]
    with Progress(console=console) as progress:
        steps = measure(shapes, options, device=device, bandwidth=bandwidth, progress=progress)
    texts = agreements(resolve_source("smollm2"), _prompts(), device="cuda")
    text = page(machine(device), bandwidth, steps, texts, {s.name: s.source for s in shapes})
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, encoding="utf-8")
    console.print(text, markup=False)
    console.print(f"written to {options.out}")
    return 0 if all(bar.passed for bar in bars(steps)) else 1


def measure(
    shapes: list[Shape],
    options: argparse.Namespace,
    *,
    device: torch.device,
    bandwidth: float,
    progress: Progress,
) -> list[StepTime]:
    """Every shape with and without graphs, at every batch size and number of tokens a row.

    The floor charges a byte once: the bandwidth counts a copied byte twice, as it is read and written.
    """
    task = progress.add_task(
        "measuring", total=2 * len(shapes) * len(options.batch_sizes) * len(options.tokens)
    )
    steps = []
    for shape in shapes:
        for graphs in (True, False):
            target = random_target(shape, device=device, cuda_graphs=graphs)
            for batch_size in options.batch_sizes:
                for row_tokens in options.tokens:
                    median_s = step_seconds(
                        target,
                        batch_size=batch_size,
                        row_tokens=row_tokens,
                        context=options.context,
                        repeats=options.repeats,
                    )
                    steps.append(
                        StepTime(
                            shape=shape.name,
                            graphs=graphs,
                            batch_size=batch_size,
                            row_tokens=row_tokens,
                            context=options.context,
                            median_s=median_s,
                            floor_s=shape.read_bytes / bandwidth,
                        )
                    )
                    progress.advance(task)
            del target
            gc.collect()
            torch.cuda.empty_cache()
    return steps


def machine(device: torch.device) -> dict[str, str]:
    """What the figures belong to."""
    return {
        "device": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "CUDA": str(torch.version.cuda),
        "transformers": transformers.__version__,
    }


def _parse(argv: list[str] | None) -> argparse.Namespace:
    names = [shape.name for shape in SHAPES]
    parser = argparse.ArgumentParser(prog="python -m experiments.gpu", description=__doc__)
    parser.add_argument("--shapes", nargs="+", choices=names, default=names, help="which random models")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument(
        "--tokens", type=int, nargs="+", default=[1, 2, 4, 8], help="tokens a row in the pass"
    )
    parser.add_argument("--context", type=int, default=512, help="cached tokens a row")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path("docs/gpu-results.md"))
    options = parser.parse_args(argv)
    if min(*options.batch_sizes, *options.tokens, options.repeats) < 1 or options.context < 0:
        parser.error("batch sizes, tokens and repeats must be >= 1, the context >= 0")
    if max(options.tokens) + options.context > 4096:
        parser.error("tokens and context must fit the 4096 positions of the random models")
    return options


def _prompts() -> list[list[int]]:
    from transformers import AutoTokenizer

    prompts = load_prompts(PromptSpec(num_requests=16))
    tokenizer = AutoTokenizer.from_pretrained(resolve_source("smollm2"))
    return [list(ids) for ids in encode_prompts(prompts, tokenizer, max_context=2048)]


if __name__ == "__main__":
    sys.exit(main())
