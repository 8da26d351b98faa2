"""Engines in processes of their own: asked, kept still, and missed when they die. No vLLM is needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.bench.contenders import timed
from experiments.peers import setup, vllm_sides
from experiments.peers.worker import WorkerError
from tests.documents import REPO
from tests.fake_worker import FAKE, fake_worker


def _wait(condition, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def _state(pid: int) -> str:
    """One letter of proc_pid_stat(5): R runs, S sleeps, T is stopped, Z has ended; empty if gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return ""


def _ticks(pid: int) -> int:
    """Processor time of a process so far, in the kernel's ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


# ---- the process -------------------------------------------------------------------------------


def test_worker_says_what_it_is_and_answers_line_by_line(tmp_path: Path) -> None:
    with fake_worker(tmp_path) as worker:
        assert worker.ready() == {"vllm": "fake", "threads": 2, "start_s": 0.5}
        for num_new in (1, 3):
            answer = worker.ask({"prompts": [[5, 6], [7]], "num_new": num_new})
            assert answer == {"seconds": (num_new + 2) / 16, "tokens": [[6] * num_new, [7] * num_new]}
    assert _state(worker.pid) == ""


def test_worker_is_stopped_between_questions(tmp_path: Path) -> None:
    with fake_worker(tmp_path) as worker:
        worker.ready()
        assert _wait(lambda: _state(worker.pid) == "T")
        worker.ask({"prompts": [[1]], "num_new": 1})
        assert _wait(lambda: _state(worker.pid) == "T")


def test_a_stopped_worker_takes_no_time_from_others(tmp_path: Path) -> None:
    spinning = "import threading\ndef spin():\n    while True: pass\n"
    spinning += "threading.Thread(target=spin, daemon=True).start()\n" + FAKE
    with fake_worker(tmp_path, spinning) as worker:
        worker.ready()
        assert _wait(lambda: _state(worker.pid) == "T")
        ticks = _ticks(worker.pid)
        time.sleep(0.2)
        assert _ticks(worker.pid) == ticks
        os.kill(worker.pid, signal.SIGCONT)  # the same process left alone does spin
        assert _wait(lambda: _ticks(worker.pid) > ticks)


def test_worker_that_dies_at_its_start_is_quoted(tmp_path: Path) -> None:
    program = "import sys; print('no such model', file=sys.stderr); sys.exit(4)"
    with fake_worker(tmp_path, program) as worker, pytest.raises(WorkerError) as caught:
        worker.ready()
    assert str(caught.value).startswith("fake ended with code 4; the end of ")
    assert str(caught.value).endswith("fake.log:\nno such model")


def test_worker_that_dies_of_a_question_is_quoted(tmp_path: Path) -> None:
    with fake_worker(tmp_path) as worker:
        worker.ready()
        with pytest.raises(WorkerError, match=r"(?s)fake ended with code 7; .*no luck today"):
            worker.ask({"prompts": [[1]], "num_new": 13})
        with pytest.raises(WorkerError, match="fake ended with code 7"):  # and it stays dead
            worker.ask({"prompts": [[1]], "num_new": 1})


def test_worker_that_says_nothing_is_not_waited_for_without_end(tmp_path: Path) -> None:
    silent = "import sys; sys.stdin.read()"
    with (
        fake_worker(tmp_path, silent, timeout_s=0.2) as worker,
        pytest.raises(WorkerError, match=r"gave no answer within 0\.2 s"),
    ):
        worker.ready()


def test_no_stopped_process_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = f"""
import os, sys, time
from pathlib import Path
from experiments.peers.worker import Worker
worker = Worker("fake", [sys.executable, "-c", {FAKE!r}], env=os.environ, log=Path({str(tmp_path)!r}) / "log")
worker.ready()
print(worker.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", parent], cwd=REPO, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        pid = int(running.stdout.readline())
        assert _wait(lambda: _state(pid) == "T")
        running.send_signal(signal.SIGKILL)
    assert _wait(lambda: _state(pid) in ("", "Z"))


def test_a_side_counts_the_seconds_that_its_worker_took(tmp_path: Path) -> None:
    with fake_worker(tmp_path) as worker:
        worker.ready()
        side = vllm_sides.contender(worker)
        assert side.name == "fake"
        assert timed(side, [[5], [6]], 2) == (4 / 16, [[5, 5], [6, 6]])
        assert side.generate([[9]], 1) == [[9]]


def test_a_side_that_gives_fewer_tokens_is_not_compared(tmp_path: Path) -> None:
    lazy = FAKE.replace('request["num_new"] for', '(request["num_new"] - 1) for')
    assert lazy != FAKE
    with fake_worker(tmp_path, lazy) as worker:
        worker.ready()
        with pytest.raises(AssertionError, match=r"gave \[2, 2\] tokens, not 3 a row"):
            timed(vllm_sides.contender(worker), [[5], [6]], 3)


# ---- vLLM's end of it --------------------------------------------------------------------------

# stands for the package: it talks on standard output, and an answer's tokens are the prompt's last one
FAKE_VLLM = """
import os
from types import SimpleNamespace
__version__ = "0.0"
class SamplingParams(SimpleNamespace): pass
def TokensPrompt(prompt_token_ids): return prompt_token_ids
class LLM:
    def __init__(self, **settings):
        self.settings = settings
        print("loading", flush=True)
        os.system("echo a library that prints")
    def generate(self, prompts, params, use_tqdm):
        print("generating", flush=True)
        assert (params.temperature, params.ignore_eos) == (0.0, True)
        assert not hasattr(params, "min_tokens") and not use_tqdm
        settings = self.settings
        assert (settings["dtype"], settings["enable_prefix_caching"]) == ("float32", False)
        drafts = (settings["speculative_config"] or {"num_speculative_tokens": 0})["num_speculative_tokens"]
        kind = [int(settings["enforce_eager"]), drafts, settings["max_num_seqs"], settings["max_model_len"]]
        tokens = [(prompt + kind + [0] * 9)[:params.max_tokens] for prompt in prompts]
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=tuple(ids))]) for ids in tokens]
"""


@pytest.mark.parametrize(("mode", "kind"), [("vLLM eager", [1, 0]), ("vLLM compiled, n-gram 4", [0, 4])])
def test_the_worker_speaks_json_only_whatever_the_library_prints(
    mode: str, kind: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm.py").write_text(FAKE_VLLM)
    (tmp_path / "torch.py").write_text(
        "import os\ndef get_num_threads(): return int(os.environ['OMP_NUM_THREADS'])"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(vllm_sides, "PYTHON", Path(sys.executable))
    worker, ready = vllm_sides.start(
        mode, tmp_path, max_rows=3, max_context=40, num_threads=2, logs=tmp_path / "out"
    )
    with worker:
        assert (ready["vllm"], ready["threads"]) == ("0.0", 2)
        _, tokens = timed(vllm_sides.contender(worker), [[8], [9]], 5)
    assert tokens == [[8, *kind, 3, 40], [9, *kind, 3, 40]]
    (log,) = (tmp_path / "out").glob("*.log")
    assert log.read_text().split("\n")[:3] == ["loading", "a library that prints", "generating"]


def test_a_worker_with_other_threads_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm.py").write_text(FAKE_VLLM)
    (tmp_path / "torch.py").write_text("def get_num_threads(): return 1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(vllm_sides, "PYTHON", Path(sys.executable))
    with pytest.raises(WorkerError, match="runs 1 threads and not 2"):
        vllm_sides.start("vLLM eager", tmp_path, max_rows=1, max_context=40, num_threads=2, logs=tmp_path)


def test_vllm_is_installed_with_what_it_asks_for_but_torch() -> None:
    lines = [
        "regex",
        "torch==2.13.0+cpu; platform_machine == 'x86_64'",
        "torch==2.13.0",
        "TorchVision",
        "torchaudio; platform_machine != 's390x'",
        "torchcodec>=0.14",
        "setuptools<81.0.0; python_version > '3.0'",
        "six; python_version < '3.0'",
        "pandas; extra == 'bench'",
        "fastapi[standard]>=0.133",
    ]
    assert setup.other_requirements(lines) == ["regex", "setuptools<81.0.0", "fastapi[standard]>=0.133"]


def test_an_environment_counts_once_it_is_whole_and_of_these_versions(tmp_path: Path) -> None:
    assert not setup.is_installed(tmp_path)
    (tmp_path / ".installed").write_text("torch==2.13.0\nvllm-cpu==0.1\n")
    assert not setup.is_installed(tmp_path)
    (tmp_path / ".installed").write_text(f"{setup.TORCH}\n{setup.VLLM}\n")
    assert setup.is_installed(tmp_path)
