"""What can be set on the command line, and the checks that need no model."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dspark.models.sources import check_source
from dspark.workload.prompts import PromptSpec, check_prompts

BUILTIN, DEFAULT_TARGET = "builtin", "smollm2"
PROFILE = ("profile.rows=[1,2,4,8,16]", "profile.contexts=[64,256]", "profile.depths=[1,2,3,4]")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of a run.

    Raises:
        ValueError: a setting is outside its range, or names what is not there.
    """

    target: str
    prompts: str
    batch_sizes: list[int]
    depths: list[int]
    schedule: Path | None
    new_tokens: int
    repeats: int
    threads: int
    mode: str
    profile: list[str]
    out: Path

    def __post_init__(self) -> None:
        for name, least in (("new_tokens", 2), ("repeats", 1), ("threads", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"--{name.replace('_', '-')} must be >= {least}, got {getattr(self, name)}")
        for name in ("batch_sizes", "depths"):
            values = getattr(self, name)
            if sorted(set(values)) != values or values[0] < 1:
                raise ValueError(f"--{name.replace('_', '-')} must ascend from 1 or more, got {values}")
        check_source(self.target)
        check_prompts(self.prompt_spec)

    @property
    def prompt_spec(self) -> PromptSpec:
        """As many prompts as the largest batch has rows."""
        path = None if self.prompts == BUILTIN else self.prompts
        return PromptSpec(path=path, num_requests=max(self.batch_sizes))

    def shared(self) -> list[str]:
        """Settings of every `dspark` command that loads the target: model, drafts and requests as vLLM's."""
        target = (
            [] if self.target == DEFAULT_TARGET else ["target=pretrained", f"target.source={self.target}"]
        )
        path = [] if self.prompts == BUILTIN else [f"workload.path={Path(self.prompts).resolve()}"]
        return [
            *(*target, *path, f"workload.num_requests={max(self.batch_sizes)}", "tracker=none"),
            *(
                "drafter=ngram",
                f"engine.num_threads={self.threads}",
                "sampling.ignore_eos=true",
                "verification=greedy",
            ),
            f"sampling.max_new_tokens={self.new_tokens}",
        ]

    def record(self) -> dict[str, Any]:
        """The settings as JSON has them."""
        paths = {name: None if getattr(self, name) is None else str(getattr(self, name)) for name in _PATHS}
        return asdict(self) | paths


_PATHS = ("schedule", "out")


def parse(argv: list[str] | None) -> Options:
    """The options of a command line.

    Raises:
        ValueError: see :class:`Options`.
    """
    parser = argparse.ArgumentParser(
        prog="python -m experiments.peers.vllm_schedule",
        description="A tuned schedule in vLLM's CPU build, next to fixed depths, and what replay foretold.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--target", default=DEFAULT_TARGET, help="hub id, folder, GGUF file, or smollm2")
    add("--prompts", default=BUILTIN, help="builtin, or a JSONL file")
    add("--batch-sizes", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    add(
        "--depths",
        type=int,
        nargs="+",
        default=[1, 2, 3, 4],
        help="fixed ones; the last bounds the tuned ones",
    )
    add("--schedule", type=Path, help="a schedule of your own; the tuned one if not given")
    add("--new-tokens", type=int, default=64, help="tokens a prompt is continued by")
    add("--repeats", type=int, default=3, help="interleaved repeats; medians are shown")
    add("--threads", type=int, default=os.cpu_count() or 1, help="of every engine")
    add("--mode", choices=("compiled", "eager"), default="compiled", help="of vLLM")
    add("--profile", nargs="+", default=list(PROFILE), help="settings of `dspark profile`")
    add("--out", type=Path, default=Path("outputs/vllm_schedule"), help="folder of the stages and the result")
    return Options(**vars(parser.parse_args(argv)))
