"""Fixtures that tests of several rooms share: tiny models, and the default model where it is installed.

``--device cuda`` runs the suite on a CUDA device: targets are loaded with ``device="auto"``, which is
the device then. What is proven for a CPU alone (``numerics="invariant"``) stays there by itself.
"""

from __future__ import annotations

import os
from pathlib import Path

# Set before transformers, datasets and the hub client are imported, because they read these once.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("MPLBACKEND", "Agg")

import pytest
import torch

from dspark.models.sources import SMOLLM2, check_source, resolve_source
from dspark.models.synthetic import Family, make_synthetic_target

# Tests run in several processes, and sums must not depend on the number of cores.
torch.set_num_threads(1)

REPO = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The device that targets of the tests are loaded on."""
    parser.addoption("--device", choices=("cpu", "cuda"), default="cpu", help="where targets run")


def pytest_configure(config: pytest.Config) -> None:
    """Make ``device="auto"`` mean the chosen device, also on a machine with both."""
    if config.getoption("--device") == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # read when CUDA is first asked for, which is later
    elif not torch.cuda.is_available():
        pytest.exit("--device cuda needs a CUDA device, and torch sees none here; use --device cpu", 2)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device of ``--device``."""
    return torch.device(request.config.getoption("--device"))


@pytest.fixture(scope="session")
def cuda(device: torch.device) -> torch.device:
    """A CUDA device; skips where the suite runs on a CPU."""
    if device.type != "cuda":
        pytest.skip("needs a CUDA device: run pytest with --device cuda")
    return device


def _tiny(tmp_path_factory: pytest.TempPathFactory, family: Family, name: str, noise: float = 0.0) -> Path:
    return make_synthetic_target(tmp_path_factory.mktemp("models") / name, family=family, noise=noise)


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random two-layer Llama with a byte-level tokenizer."""
    return _tiny(tmp_path_factory, "llama", "tiny-llama")


@pytest.fixture(scope="session")
def tiny_llama_drafter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a noisy copy of ``tiny_llama``: same vocabulary, top choice equal about half the time."""
    return _tiny(tmp_path_factory, "llama", "tiny-llama-drafter", noise=0.1)


@pytest.fixture(scope="session")
def tiny_qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random Qwen3: norms on queries and keys, biases."""
    return _tiny(tmp_path_factory, "qwen3", "tiny-qwen3")


@pytest.fixture(scope="session")
def tiny_gemma2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random Gemma 2: soft caps on scores and logits, a sliding and a full layer."""
    return _tiny(tmp_path_factory, "gemma2", "tiny-gemma2")


@pytest.fixture(scope="session")
def tiny_gemma3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random Gemma 3: a sliding and a full layer, norms on queries and keys, own scale."""
    return _tiny(tmp_path_factory, "gemma3", "tiny-gemma3")


@pytest.fixture(scope="session")
def tiny_gpt_oss(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random gpt-oss: attention sinks, biases, a mixture of experts."""
    return _tiny(tmp_path_factory, "gpt_oss", "tiny-gpt-oss")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """Folder of SmolLM2-135M-Instruct, converted on first use; skips where the wheel is missing."""
    try:
        check_source(SMOLLM2)
    except ValueError as error:
        pytest.skip(str(error))
    return resolve_source(SMOLLM2)


@pytest.fixture(scope="session")
def eval_data() -> Path:
    """Folder with the public evaluation sets next to the repository; skips where there is none."""
    folder = REPO.parent / "shared" / "data" / "eval_datasets"
    if not folder.is_dir():
        pytest.skip(f"no evaluation sets at {folder}")
    return folder
