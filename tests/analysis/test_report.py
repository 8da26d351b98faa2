"""The printed table says what the summary rows say."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from dspark.analysis.report import summary_table


def make_summary_row(policy: str, batch_size: int, speed: float | None, **more: Any) -> dict[str, Any]:
    """A summary row with the fields that tables and figures read."""
    row = {
        "policy": policy,
        "drafter": "ngram",
        "verification": "coupled",
        "batch_size": batch_size,
        "workload": "builtin",
        "num_requests": 16,
        "numerics": "fast",
        "output_tokens": 1234,
        "wall_s": 12.34,
        "tokens_per_s": speed and speed / 2,
        "decode_tokens_per_s": speed,
        "ratio_to_plain": None,
        "acceptance_length": None,
        "acceptance_rate": None,
        "drafted_tokens": 0,
        "target_passes": 99,
    }
    return {**row, **more}


def _text(rows: list[dict[str, Any]]) -> str:
    console = Console(width=200, force_terminal=True, color_system="standard", highlight=False)
    with console.capture() as captured:
        console.print(summary_table(rows))
    return captured.get()


def test_numbers_appear_in_their_format() -> None:
    more = {"ratio_to_plain": 1.25, "acceptance_length": 2.346, "acceptance_rate": 0.5, "wall_s": 0.123}
    text = _text([make_summary_row("fixed 4", 8, 1234.56, **more)])
    for shown in ("fixed 4", "1,234.6", "617.3", "1.25×", "2.35", "50.0 %", "1,234", "0.12", "99"):
        assert shown in text
    assert "builtin, 16 requests; drafter ngram, verification coupled, numerics fast" in text


def test_columns_without_any_value_are_left_out_and_holes_are_dashes() -> None:
    plain = make_summary_row("fixed 0", 1, 10.0)
    assert "acceptance" not in _text([plain])
    both = _text([plain, make_summary_row("fixed 4", 1, 12.0, acceptance_length=2.0)])
    assert "acceptance" in both
    assert "│          - │" in both


def test_the_fastest_policy_of_a_batch_size_is_bold() -> None:
    rows = [
        make_summary_row("fixed 0", 1, 10.0),
        make_summary_row("fixed 4", 1, 12.0),
        make_summary_row("fixed 0", 8, 50.0),
        make_summary_row("fixed 4", 8, None),
    ]
    body = [line for line in _text(rows).splitlines() if "fixed" in line]
    assert [("\x1b[1m" in line) for line in body] == [False, True, True, False]
