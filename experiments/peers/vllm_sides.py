"""vLLM's CPU build as sides of the comparison, each an engine in a process of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.bench.contenders import Contender, Tokens
from experiments.peers.setup import ENVIRONMENT, PYTHON
from experiments.peers.worker import Worker, WorkerError

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOKUP = {"prompt_lookup_max": 3, "prompt_lookup_min": 1}
"""What vLLM's n-gram drafts are looked up by, as on the other sides."""


def ngram(num_draft: int) -> dict[str, Any]:
    """The value of ``--speculative-config`` for so many n-gram drafts a step."""
    return {"method": "ngram", "num_speculative_tokens": num_draft, **LOOKUP}


EAGER, COMPILED, COMPILED_NGRAM = "vLLM eager", "vLLM compiled", "vLLM compiled, n-gram 4"
MODES = {
    EAGER: {"compiled": False, "speculative": None},
    COMPILED: {"compiled": True, "speculative": None},
    COMPILED_NGRAM: {"compiled": True, "speculative": ngram(4)},
}
"""Settings of each side's engine, by its name."""

KV_SPACE_GIB = 2


def start(
    mode: str, folder: Path, *, max_rows: int, max_context: int, num_threads: int, logs: Path
) -> tuple[Worker, dict[str, Any]]:
    """A loaded engine, and what it says of itself: version, threads, seconds to start.

    Args:
        mode: a key of ``MODES``.
        folder: the model.
        max_rows: largest batch.
        max_context: tokens of the longest row, prompt and answer.
        num_threads: of its thread pool.
        logs: folder for what it prints.

    Raises:
        WorkerError: it did not come up, or runs another number of threads.
    """
    settings = {"model": str(folder), "max_rows": max_rows, "max_context": max_context} | MODES[mode]
    return start_engine(mode, settings, num_threads=num_threads, logs=logs)


def start_engine(
    name: str, settings: Mapping[str, Any], *, num_threads: int, logs: Path, kv_space_gib: int = KV_SPACE_GIB
) -> tuple[Worker, dict[str, Any]]:
    """As :func:`start`, of any engine.

    Args:
        name: of the side.
        settings: of ``worker_vllm.py``.
        num_threads: of its thread pool.
        logs: folder for what it prints.
        kv_space_gib: its cache.

    Raises:
        WorkerError: it did not come up, or runs another number of threads.
    """
    worker = Worker(
        name,
        # -P: the folder of the file stays out of the path, where its names could hide a library's
        [str(PYTHON), "-P", str(Path(__file__).with_name("worker_vllm.py")), json.dumps(settings)],
        env=environment(os.environ, num_threads, kv_space_gib),
        log=logs / f"{name.replace(', ', ' ').replace(' ', '_')}.log",
    )
    try:
        ready = worker.ready()
        if ready["threads"] != num_threads:
            raise WorkerError(
                f"{name} is not comparable: it runs {ready['threads']} threads and not {num_threads}; "
                "see that nothing else sets the threads of OpenMP"
            )
    except BaseException:
        worker.close()
        raise
    return worker, ready


def environment(
    base: Mapping[str, str], num_threads: int, kv_space_gib: int = KV_SPACE_GIB
) -> dict[str, str]:
    """Environment of a worker: everything of ``base``, and what vLLM's CPU build asks for.

    * One process holds the whole engine. In several, on x86, vLLM keeps a core for its scheduler and
      computes with the rest (``vllm/utils/ompmultiprocessing.py`` of 0.32.0).
    * Intel's OpenMP, from its own requirements, comes first: its documentation says so, and it warns of
      slow speculation otherwise
      (https://docs.vllm.ai/en/latest/getting_started/installation/cpu/, "set LD_PRELOAD").
    * What is compiled is kept beside the environment. 0.32.0 does not get a CPU function back from there
      ("Compiling model again due to a load failure"), so each compiled start takes minutes.
    """
    openmp = ENVIRONMENT / "lib" / "libiomp5.so"
    return dict(base) | {
        "OMP_NUM_THREADS": str(num_threads),
        "LD_PRELOAD": str(openmp) if openmp.exists() else "",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(kv_space_gib),
        "VLLM_CACHE_ROOT": str(ENVIRONMENT / "cache" / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(ENVIRONMENT / "cache" / "inductor"),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }


def contender(worker: Worker) -> Contender:
    """The side that asks ``worker``; its seconds are the ones that the worker took itself."""

    def timed(prompts: Tokens, num_new: int) -> tuple[float, Tokens]:
        answer = worker.ask({"prompts": prompts, "num_new": num_new})
        return answer["seconds"], answer["tokens"]

    def generate(prompts: Tokens, num_new: int) -> Tokens:
        return timed(prompts, num_new)[1]

    return Contender(name=worker.name, generate=generate, timed=timed)
