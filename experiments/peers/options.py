"""What can be set on the command line, and the checks that need no model."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dspark.models.sources import check_source
from dspark.workload.prompts import PromptSpec, check_prompts
from experiments.peers import vllm_sides
from experiments.peers.sides import POLICIES

TRANSFORMERS = "transformers"
VLLM_MODES = {
    "vllm-eager": vllm_sides.EAGER,
    "vllm-compiled": vllm_sides.COMPILED,
    "vllm-compiled-ngram": vllm_sides.COMPILED_NGRAM,
}
"""Side by its word on the command line."""

BUILTIN = "builtin"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of a run.

    Raises:
        ValueError: a setting is outside its range, has no effect, or names what is not there.
    """

    target: str
    assistant: str | None
    prompts: str
    batch_sizes: list[int]
    new_tokens: int
    repeats: int
    threads: int
    policy: str
    peers: list[str]
    out: Path

    def __post_init__(self) -> None:
        for name, least in (("new_tokens", 2), ("repeats", 1), ("threads", 1)):
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"--{name.replace('_', '-')} must be >= {least}, got {value}")
        for name in ("batch_sizes", "peers"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"--{name.replace('_', '-')} must name each once, got {values}")
        if min(self.batch_sizes) < 1:
            raise ValueError(f"--batch-sizes must be >= 1, got {min(self.batch_sizes)}")
        check_source(self.target)
        check_prompts(self.prompt_spec)
        if self.assistant is not None:
            self._check_assistant(self.assistant)

    @property
    def prompt_spec(self) -> PromptSpec:
        """As many prompts as the largest batch has rows."""
        path = None if self.prompts == BUILTIN else self.prompts
        return PromptSpec(path=path, num_requests=max(self.batch_sizes))

    @property
    def vllm_modes(self) -> list[str]:
        """Names of the vLLM sides that are asked for."""
        return [VLLM_MODES[peer] for peer in self.peers if peer in VLLM_MODES]

    def record(self) -> dict[str, Any]:
        """The settings as JSON has them."""
        return asdict(self) | {"out": str(self.out)}

    def _check_assistant(self, assistant: str) -> None:
        check_source(assistant)
        if TRANSFORMERS not in self.peers or 1 not in self.batch_sizes:
            raise ValueError(
                "--assistant has no effect: assisted generation is a side of transformers at batch size 1; "
                f"add {TRANSFORMERS} to --peers and 1 to --batch-sizes, or leave it out"
            )


def parse(argv: list[str] | None) -> Options:
    """The options of a command line.

    Raises:
        ValueError: see :class:`Options`.
    """
    parser = argparse.ArgumentParser(
        prog="python -m experiments.peers",
        description="dspark, transformers and vLLM's CPU build side by side in one run.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    every = [TRANSFORMERS, *VLLM_MODES]
    parser.add_argument("--target", default="smollm2", help="hub id, folder, GGUF file, or smollm2")
    parser.add_argument("--assistant", help="model that drafts for transformers, named like the target")
    parser.add_argument("--prompts", default=BUILTIN, help="builtin, or a JSONL file")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--new-tokens", type=int, default=64, help="tokens a prompt is continued by")
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats; medians are shown")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of every side")
    parser.add_argument("--policy", choices=POLICIES, default=POLICIES[0], help="dspark's dynamic depth")
    parser.add_argument("--peers", choices=every, nargs="+", default=every, help="whom to measure against")
    parser.add_argument("--out", type=Path, default=Path("outputs/peers"), help="folder of the results")
    return Options(**vars(parser.parse_args(argv)))
