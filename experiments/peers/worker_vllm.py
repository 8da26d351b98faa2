"""One vLLM engine as a long-lived process: a line of JSON in, a line of JSON out.

vLLM's own interpreter runs this file by its path, so it imports the standard library and vLLM only.

Started with one argument, a JSON object of settings (see :func:`load`). When the engine is loaded
it writes ``{"vllm", "threads", "start_s"}``. Then each line ``{"prompts": [[int]], "num_new": int}``
is answered by ``{"seconds": float, "tokens": [[int]]}``. It ends with its standard input. Standard
output carries nothing else: whatever vLLM and its libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, TextIO


def load(settings: dict[str, Any]) -> Any:
    """A ``vllm.LLM`` in float32.

    Prefix caching is off, since every repeat brings the same prompts.

    Args:
        settings: ``model`` (folder), ``max_rows``, ``max_context`` (tokens a row), ``compiled``,
            and ``speculative`` (the value of ``--speculative-config``, or null).
    """
    from vllm import LLM

    return LLM(
        model=settings["model"],
        dtype="float32",
        seed=0,
        enforce_eager=not settings["compiled"],
        enable_prefix_caching=False,
        max_num_seqs=settings["max_rows"],
        max_model_len=settings["max_context"],
        max_num_batched_tokens=max(4096, settings["max_context"]),
        speculative_config=settings["speculative"],
        disable_log_stats=True,
    )


def answer(engine: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Greedy continuations of exactly ``num_new`` tokens a prompt, and the seconds they took.

    ``ignore_eos`` alone gives the count. ``min_tokens`` would take end tokens out of the choice, so
    that the text would be another than the one of sides that go on behind an end token.
    """
    from vllm import SamplingParams, TokensPrompt

    params = SamplingParams(temperature=0.0, max_tokens=request["num_new"], ignore_eos=True, detokenize=False)
    prompts = [TokensPrompt(prompt_token_ids=ids) for ids in request["prompts"]]
    start = time.perf_counter()
    outputs = engine.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "tokens": [list(output.outputs[0].token_ids) for output in outputs]}


def main() -> None:
    """Loads, says so, and answers until its standard input ends."""
    channel = _own_stdout()
    start = time.perf_counter()
    engine = load(json.loads(sys.argv[1]))
    import torch
    import vllm

    ready = {"vllm": vllm.__version__, "threads": torch.get_num_threads()}
    _say(channel, ready | {"start_s": time.perf_counter() - start})
    for line in sys.stdin:
        _say(channel, answer(engine, json.loads(line)))


def _own_stdout() -> TextIO:
    """A stream to the standard output, which is then standard error for everyone else."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return channel


def _say(channel: TextIO, message: dict[str, Any]) -> None:
    channel.write(json.dumps(message) + "\n")
    channel.flush()


if __name__ == "__main__":
    main()
