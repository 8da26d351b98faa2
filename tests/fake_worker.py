"""A process that stands for an engine in the tests of the comparison with others."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from experiments.peers.worker import Worker

# answers like an engine that repeats a prompt's last token, and says that n tokens took (n + 2) / 16 s
FAKE = """
import json, sys
print(json.dumps({"vllm": "fake", "threads": 2, "start_s": 0.5}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["num_new"] == 13:
        print("no luck today", file=sys.stderr)
        sys.exit(7)
    tokens = [[prompt[-1]] * request["num_new"] for prompt in request["prompts"]]
    print(json.dumps({"seconds": (request["num_new"] + 2) / 16, "tokens": tokens}), flush=True)
"""


def fake_worker(
    tmp_path: Path, program: str = FAKE, *, name: str = "fake", timeout_s: float = 60.0
) -> Worker:
    command_line = [sys.executable, "-c", program]
    return Worker(name, command_line, env=os.environ, log=tmp_path / "logs" / "fake.log", timeout_s=timeout_s)
