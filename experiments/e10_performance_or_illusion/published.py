"""What the simulator of arXiv 2601.11580 gives on its own traces, and which of them are drawn.

Run at github.com/SpecDecode-Bench/simulator, revision 2fdccbd, seed 42, 300 requests: Llama-3.1-8B on an
H100, EAGLE-3 and prompt lookup. Speed-ups over plain decoding. The paper shows them as curves.
"""

from __future__ import annotations

from typing import Literal

BATCH_SIZES = (1, 8, 16, 32, 64, 128)
SEED, NUM_REQUESTS = 42, 300

Rule = Literal["fixed 1", "fixed 3", "fixed 5", "oracle", "combined oracle"]
FIXED: tuple[Rule, ...] = ("fixed 1", "fixed 3", "fixed 5")

SPEEDUPS: dict[str, dict[Rule, tuple[float, ...]]] = {
    "gsm8k": {
        "fixed 1": (1.294, 1.277, 1.261, 1.232, 1.190, 1.136),
        "fixed 3": (1.810, 1.726, 1.646, 1.521, 1.357, 1.182),
        "fixed 5": (2.010, 1.861, 1.726, 1.530, 1.295, 1.070),
        "oracle": (2.129, 2.056, 1.984, 1.869, 1.713, 1.538),
        "combined oracle": (2.800, 2.643, 2.497, 2.276, 1.996, 1.710),
    },
    "sharegpt": {
        "fixed 1": (1.262, 1.252, 1.242, 1.224, 1.197, 1.162),
        "fixed 3": (1.736, 1.666, 1.600, 1.498, 1.367, 1.226),
        "fixed 5": (1.928, 1.797, 1.680, 1.513, 1.314, 1.123),
        "oracle": (2.099, 2.035, 1.975, 1.884, 1.767, 1.640),
        "combined oracle": (3.105, 2.877, 2.692, 2.446, 2.168, 1.905),
    },
    "instructcoder": {
        "fixed 1": (1.339, 1.317, 1.296, 1.262, 1.215, 1.161),
        "fixed 3": (2.029, 1.910, 1.803, 1.648, 1.462, 1.283),
        "fixed 5": (2.383, 2.165, 1.982, 1.736, 1.466, 1.229),
        "oracle": (2.731, 2.525, 2.351, 2.115, 1.849, 1.607),
        "combined oracle": (4.893, 4.083, 3.529, 2.903, 2.321, 1.872),
    },
    "cnn": {
        "fixed 3": (1.757, 1.647, 1.557, 1.440, 1.315, 1.207),
        "fixed 5": (1.939, 1.758, 1.619, 1.447, 1.276, 1.138),
        "oracle": (2.095, 1.963, 1.857, 1.721, 1.577, 1.454),
        "combined oracle": (2.971, 2.616, 2.364, 2.071, 1.796, 1.583),
    },
}
"""By prompts, rule and batch size."""

ACCEPTED_LENGTHS = {"gsm8k": 3.070, "sharegpt": 3.332, "instructcoder": 3.765, "cnn": 3.162}
"""EAGLE-3's mean over all positions, the target's own token included."""


def file_of(prompts: str) -> str:
    """The file of the traces of a set of prompts."""
    return f"llama3.1-8b_{prompts}.jsonl"
