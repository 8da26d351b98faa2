"""Linear cost models whose coefficients were published; all on H100, all converted to seconds.

Sources:

* ``illusion-*``: "Speculative Decoding: Performance or Illusion?" (arXiv 2601.11580), the
  ``predictor.py`` of github.com/SpecDecode-Bench/simulator, revision 2fdccbd. Llama-3.1-8B, fitted
  on batches of 1 to 64. The simulator hands a depth of k as k + 1 draft tokens, which is 0.8 us,
  and charges its overhead to plain steps too.
* ``smartspec-*``: SmartSpec, later TurboSpec (arXiv 2406.14066), the ``config.py`` beside
  ``vllm/v1/spec_decode/auto_tuner.py`` of github.com/LiuXiaoxuanPKU/vllm, branch batch-dsd,
  revision b08a7d3, in milliseconds there. Llama 8B, and Llama 70B on four devices. Its draft term
  counts one input token a row, so the per-token coefficient joins the per-row one. The tuner
  counts the input token of each row twice in ``tokens``; to get its numbers, do the same.

The row coefficients of ``smartspec-*`` are negative. For the 8B models that puts
``LinearCost.min_context_tokens`` at 512: shorter contexts are an extrapolation.
"""

from __future__ import annotations

import difflib
from types import MappingProxyType
from typing import TYPE_CHECKING

from dspark.cost.linear import LinearCost

if TYPE_CHECKING:
    from collections.abc import Mapping


def _illusion_8b(**draft: float) -> LinearCost:
    """The target and step overhead of arXiv 2601.11580 with a drafter's coefficients."""
    return LinearCost(
        target_fixed_s=5.88590713e-3,
        target_kv_s=3.92645679e-8,
        target_token_s=2.10103129e-5,
        overhead_s=1.20683946e-3,
        **draft,
    )


def _smartspec_8b(**draft: float) -> LinearCost:
    """The 8B target and overhead of arXiv 2406.14066 with a drafter's coefficients."""
    return LinearCost(
        target_fixed_s=6.938699571857084e-3,
        target_kv_s=4.85907942e-8,
        target_token_s=1.84383603e-5,
        target_row_s=-4.33144783e-5,
        speculating_overhead_share=0.05,
        **draft,
    )


PUBLISHED: Mapping[str, LinearCost] = MappingProxyType(
    {
        "illusion-llama3.1-8b-h100-eagle": _illusion_8b(
            draft_fixed_s=2.13526175e-3, draft_kv_s=2.37768493e-9, draft_depth_s=8.41429603e-7
        ),
        "illusion-llama3.1-8b-h100-ngram": _illusion_8b(draft_target_share=0.005875),
        "smartspec-llama-8b-h100-draft": _smartspec_8b(
            draft_fixed_s=4.471109584339972e-4,
            draft_kv_s=2.89700974e-9,
            draft_row_s=5.52805909e-6 + 4.38694070e-8,
            draft_depth_s=4.52175870e-4,
        ),
        "smartspec-llama-8b-h100-ngram": _smartspec_8b(draft_target_share=0.04),
        "smartspec-llama-70b-h100-ngram": LinearCost(
            target_fixed_s=1.834535e-2,
            target_kv_s=6.24369264e-8,
            target_token_s=6.40216301e-5,
            target_row_s=-3.97382298e-5,
            target_speculating_s=-1.12291902e-4,
            draft_target_share=0.04,
            speculating_overhead_share=0.05,
        ),
    }
)
"""Published models by name: source, target, machine, drafter."""


def published_cost(name: str) -> LinearCost:
    """The published model of that name.

    Raises:
        ValueError: no such name.
    """
    if name in PUBLISHED:
        return PUBLISHED[name]
    near = difflib.get_close_matches(name, PUBLISHED, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"no published cost model is named {name!r}: {hint}there are {', '.join(PUBLISHED)}")
