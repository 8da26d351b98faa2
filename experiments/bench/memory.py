"""``python -m experiments.bench.memory``: peak memory of a whole run against weights and cache.

The run has a process of its own, since a process never gives back its peak. What a process needs
before any model is there (interpreter, libraries, the model's code, thread pools) is measured in
the same process by a run on a tiny model of the same kind, and does not count.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from dspark.drafters.ngram import NgramDrafter
from dspark.engine.engine import Engine
from dspark.models.sources import check_source, resolve_source
from dspark.models.synthetic import make_synthetic_target
from dspark.models.target import HFTarget, load_target
from dspark.policies import Fixed
from dspark.types import SamplingParams
from dspark.workload.prompts import PromptSpec, encode_prompts, load_prompts
from experiments.bench.ratios import Ratio

BAR = 1.25
STATUS = Path("/proc/self/status")


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes of one run; peaks and pages are resident bytes above the baseline."""

    batch_size: int
    num_new: int
    weight_bytes: int
    kv_bytes: int
    baseline_bytes: int  # resident after a run on a tiny model
    load_peak_bytes: int  # up to the loaded target
    decode_peak_bytes: int  # from there to the last token, weights included
    file_bytes: int  # of what is resident at the end, pages of mapped files, such as the weights'

    def ratios(self) -> list[Ratio]:
        """The peak of each phase over weights and cache; loading allocates no cache."""
        peaks = {"load": self.load_peak_bytes, "decode": self.decode_peak_bytes}
        return [
            Ratio(
                name=f"peak memory / (weights + KV), {phase}",
                batch_size=self.batch_size,
                value=peak / (self.weight_bytes + self.kv_bytes),
                bar=BAR,
                upper=True,
            )
            for phase, peak in peaks.items()
        ]


def available() -> bool:
    """True where the kernel tells a process's peak and lets it start anew (Linux)."""
    return STATUS.exists()


def measure_memory(target: str, *, batch_size: int = 16, num_new: int = 64) -> Memory:
    """The peaks of a run of its own: load, then decode ``batch_size`` rows by ``num_new`` tokens.

    Args:
        target: as on the command line.
        batch_size: rows, of the built-in prompts.
        num_new: new tokens a row.

    Raises:
        ValueError: there is no such target.
        RuntimeError: the run failed; the message has the end of what it printed.
    """
    check_source(target)
    command = [sys.executable, "-m", "experiments.bench.memory", "--target", target, "--json"]
    command += ["--batch-size", str(batch_size), "--new-tokens", str(num_new)]
    folder = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the memory run failed:\n{done.stderr[-2000:]}")
    return Memory(**json.loads(done.stdout.splitlines()[-1]))


def measure_here(target: str, *, batch_size: int, num_new: int) -> Memory:
    """The same in this process, which should have nothing else in it."""
    if batch_size < 1 or num_new < 1:
        raise ValueError(f"a run needs at least 1 row and 1 new token, got {batch_size} and {num_new}")
    folder = resolve_source(target)
    with tempfile.TemporaryDirectory() as tiny:
        prompts = [[1 + i, 2, 3] * 8 for i in range(batch_size)]
        _decode(make_synthetic_target(Path(tiny)), prompts, num_new=8)
    baseline, file_baseline = _resident("VmRSS"), _resident("RssFile")
    _forget_peak()
    loaded = load_target(folder, numerics="fast", device="cpu")
    load_peak = _resident("VmHWM") - baseline
    _forget_peak()
    records = load_prompts(PromptSpec(num_requests=batch_size))
    encoded = encode_prompts(records, loaded.tokenizer, max_context=loaded.max_context)
    row_tokens = _continue(loaded, [list(ids) for ids in encoded], num_new)
    return Memory(
        batch_size=batch_size,
        num_new=num_new,
        weight_bytes=loaded.weight_bytes,
        kv_bytes=batch_size * row_tokens * loaded.cache_shape.bytes_per_token(loaded.dtype),
        baseline_bytes=baseline,
        load_peak_bytes=load_peak,
        decode_peak_bytes=_resident("VmHWM") - baseline,
        file_bytes=_resident("RssFile") - file_baseline,
    )


def _decode(folder: Path, prompts: list[list[int]], *, num_new: int) -> None:
    _continue(load_target(folder, numerics="fast", device="cpu"), prompts, num_new)


def _continue(target: HFTarget, prompts: list[list[int]], num_new: int) -> int:
    """Runs the engine as it comes, with n-gram drafts of 4; the cached tokens a row has room for."""
    row_tokens = max(map(len, prompts)) + num_new
    engine = Engine(
        target, NgramDrafter(), Fixed(depth=4), max_batch_size=len(prompts), max_tokens_per_row=row_tokens
    )
    engine.generate(prompts, SamplingParams(max_new_tokens=num_new, ignore_eos=True))
    return row_tokens


def _resident(field: str) -> int:
    """Bytes resident now (VmRSS; RssFile of mapped files) or at most since the last reset (VmHWM).

    Not ``getrusage``: its ``ru_maxrss`` begins at what the parent had resident when it forked, and
    the parent of this run has models loaded.
    """
    (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def _forget_peak() -> None:
    """Sets the peak to what is resident now (proc_pid_clear_refs(5), value 5)."""
    Path("/proc/self/clear_refs").write_text("5")


def main(argv: list[str] | None = None) -> int:
    """0 if the bars are reached, 1 if one is missed, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench.memory", description=__doc__)
    parser.add_argument("--target", default="smollm2", help="hub id, folder, GGUF file, or smollm2")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--new-tokens", type=int, default=64, help="tokens a prompt is continued by")
    parser.add_argument("--json", action="store_true", help="print the bytes only, as one line of JSON")
    options = parser.parse_args(argv)
    try:
        found = measure_here(options.target, batch_size=options.batch_size, num_new=options.new_tokens)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(asdict(found)))
        return 0
    for name, value in asdict(found).items():
        print(f"{name:18} {value / 1e6:10.1f} MB" if name.endswith("_bytes") else f"{name:18} {value:10}")
    for ratio in found.ratios():
        print(f"{ratio.name}: {ratio.value:.3f} (bar <= {ratio.bar:g})")
    return 0 if all(ratio.passed for ratio in found.ratios()) else 1


if __name__ == "__main__":
    sys.exit(main())
