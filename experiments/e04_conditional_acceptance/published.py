"""Figure 2 of DSpark (arXiv 2607.05147), as far as its text has numbers: Qwen3-4B, temperature 1."""

from __future__ import annotations

FIRST = {
    ("DSpark", "math"): 0.93,
    ("DFlash", "math"): 0.88,
    ("EAGLE-3", "math"): 0.81,
    ("DFlash", "chat"): 0.72,
    ("EAGLE-3", "chat"): 0.53,
}
"""Acceptance at position 1 by drafter and domain."""
