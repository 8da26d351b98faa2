"""SGLang's three files: adaptive steps, and the SPS and STS files of its DSpark.

* ``--speculative-adaptive-config``: candidate depths by batch size. A key is the lowest batch size
  it holds for, as a text; a batch is padded to a captured graph's size before it is looked up. With
  one candidate there is nothing to adapt, so the file is a table. Rules: at least one key, lists
  that are not empty, depths >= 0. Only EAGLE and EAGLE3 with ``topk=1`` read it
  (https://github.com/sgl-project/sglang/pull/24055,
  https://docs.sglang.io/advanced_features/adaptive_speculative_decoding.html).
* ``--speculative-dspark-sps-table-path``: steps per second by the tokens of the pass. Between two
  listed sizes the smaller one's rate holds. Rules: sizes ascend from 1 or more, a rate for each,
  ``max_batch_tokens`` at least the last; a table of one size counts as none, and everything is
  verified then.
* ``--speculative-dspark-confidence-sts-path``: a temperature a draft position, for the drafter's
  confidence head. Rules: one or more, each > 0, as many as the block has positions. This and the
  former: https://github.com/sgl-project/sglang/pull/30261.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.analysis.schedule import Schedule

CONFIDENCE = "confidence"
"""The estimator that is the drafter's confidence head."""


def adaptive_config(schedule: Schedule) -> dict[str, Any]:
    """One candidate depth for every range, by its lowest batch size.

    Raises:
        ValueError: no batch size drafts.
    """
    if schedule.max_depth == 0:
        raise ValueError(
            "SGLang needs a depth >= 1 to prepare for, and every depth of the schedule is 0: "
            "serve without --speculative-algorithm"
        )
    return {str(low): {"candidate_steps": [depth]} for low, _, depth in schedule.merged().depths}


def sps_table(tokens: Sequence[int], seconds: Sequence[float]) -> dict[str, Any]:
    """The steps per second of passes that take these seconds.

    Args:
        tokens: sizes of the pass, ascending.
        seconds: of a whole step with a pass of each size.

    Raises:
        ValueError: fewer than two sizes, sizes that do not ascend, or what is no time.
    """
    if len(tokens) < 2:
        raise ValueError(
            f"SGLang takes a table of one size for none and verifies everything, got {len(tokens)}: "
            "profile two or more numbers of tokens"
        )
    if tokens[0] < 1 or any(larger <= size for size, larger in pairwise(tokens)):
        raise ValueError(f"SGLang needs numbers of tokens that ascend from 1 or more, got {list(tokens)}")
    if len(seconds) != len(tokens) or not all(0 < second < math.inf for second in seconds):
        raise ValueError(
            f"SGLang needs seconds > 0 for each of {len(tokens)} numbers of tokens, got {list(seconds)}"
        )
    return {
        "sample_batch_tokens": list(tokens),
        "sample_steps_per_sec": [1 / second for second in seconds],
        "max_batch_tokens": tokens[-1],
    }


def sts_calibration(temperatures: Sequence[float], *, estimator: str, dataset: str = "") -> dict[str, Any]:
    """The temperatures as SGLang's calibration.

    Args:
        temperatures: of the draft positions 1 ... K.
        estimator: what they were fitted to.
        dataset: what they were fitted on; SGLang only keeps it.

    Raises:
        ValueError: none, one that is not > 0, or those of another estimator than SGLang has.
    """
    if estimator != CONFIDENCE:
        raise ValueError(
            f"SGLang divides the confidence head's logits by the temperatures, got those of the estimator "
            f"{estimator!r}: run `dspark calibrate calibrate.estimator={CONFIDENCE}`"
        )
    if not temperatures or not all(0 < temperature < math.inf for temperature in temperatures):
        raise ValueError(f"SGLang needs temperatures > 0, one a position, got {list(temperatures)}")
    return {"temperatures": list(temperatures), "dataset": dataset}


def adaptive_notes(schedule: Schedule) -> list[str]:
    """What to know beside the adaptive steps, a line each."""
    _, last, depth = schedule.depths[-1]
    return [
        f"past batch size {last} SGLang goes on with depth {depth}",
        "SGLang pads a batch to the size of a captured graph before it looks the depth up",
    ]


def sts_notes(temperatures: Sequence[float]) -> list[str]:
    """What to know beside the temperatures, a line each."""
    return [f"SGLang takes them with --speculative-dspark-block-size {len(temperatures)} only"]
