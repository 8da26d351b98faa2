"""Confidence: where drafts end, that both ways of ending agree, and that the output law stays."""

from __future__ import annotations

import itertools
import random
import time
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark.policies import Confidence
from dspark.types import Draft, LosslessClass, Signal
from tests.policies.timed import bar_s

PRE_TOKEN = ("top1_probability", "confidence")


def draft_of(signal: str, values: list[list[float]]) -> Draft:
    score = torch.tensor(values)
    shape = score.shape
    return Draft(
        tokens=torch.zeros(shape, dtype=torch.long),
        lengths=(~score.isnan()).sum(1),
        q=None,
        signals={Signal(signal): score},
    )


@pytest.mark.parametrize(("stop", "kept"), [("after", [3, 1, 4, 2]), ("before", [2, 0, 4, 2])])
def test_first_position_below_the_threshold_ends_the_draft(stop, kept, step_context):
    nan = torch.nan
    draft = draft_of(
        "confidence",
        [[0.9, 0.5, 0.4, 0.9], [0.1, 0.9, 0.9, 0.9], [0.9, 0.9, 0.9, 0.5], [0.6, 0.7, nan, nan]],
    )
    policy = Confidence(depth=4, threshold=0.5, signal="confidence", stop=stop)
    assert policy.trim(step_context(4), draft, None).tolist() == kept


@pytest.mark.parametrize(("stop", "kept"), [("after", 3), ("before", 2)])
def test_survival_multiplies_over_the_prefix(stop, kept, step_context):
    # 0.8, 0.64, 0.512: each above 0.6 by itself, the third product is not
    draft = draft_of("confidence", [[0.8, 0.8, 0.8, 0.8]])
    policy = Confidence(depth=4, threshold=0.6, signal="confidence", survival=True, stop=stop)
    assert policy.trim(step_context(1), draft, None).tolist() == [kept]


def test_threshold_zero_is_fixed_depth_and_one_stops_at_any_doubt(step_context):
    draft = draft_of("confidence", [[0.0, 1.0, 0.5], [1.0, 1.0, 0.99]])
    ctx = step_context(2)
    assert Confidence(depth=3, threshold=0.0, signal="confidence").trim(ctx, draft, None).tolist() == [3, 3]
    assert Confidence(depth=3, threshold=1.0, signal="confidence").trim(ctx, draft, None).tolist() == [1, 3]


@settings(deadline=None)
@given(data=st.data(), survival=st.booleans(), stop=st.sampled_from(["after", "before"]))
def test_stopping_on_the_way_and_cutting_the_block_verify_the_same(data, survival, stop, step_context):
    """Drafting token after token under ``proceed``, and then ``trim``, equals ``trim`` of the block."""
    unit = st.floats(0, 1, width=32)
    row = st.lists(unit, min_size=5, max_size=5)
    block = draft_of("confidence", data.draw(st.lists(row, min_size=1, max_size=4)))
    policy = Confidence(depth=5, threshold=data.draw(unit), signal="confidence", survival=survival, stop=stop)
    ctx = step_context(len(block.lengths))
    whole = block.signals[Signal.CONFIDENCE]
    lengths = torch.ones_like(block.lengths)
    for k in range(1, 5):
        seen = whole[:, :k].where(torch.arange(k) < lengths[:, None], torch.nan)
        goes_on = policy.proceed(ctx, k, {Signal.CONFIDENCE: seen}, None)
        lengths = torch.where((lengths == k) & goes_on, k + 1, lengths)
    stopped = Draft(
        tokens=block.tokens,
        lengths=lengths,
        q=None,
        signals={Signal.CONFIDENCE: whole.where(torch.arange(5) < lengths[:, None], torch.nan)},
    )
    verify = policy.trim(ctx, stopped, None)
    assert torch.equal(verify, policy.trim(ctx, block, None))
    if stop == "after":
        assert torch.equal(verify, lengths)  # the token that fails stays, nothing behind it was drafted


# The output law, exactly: two tokens, a target and a drafter that depend on the whole prefix.

DEPTH = 3
PREFIXES = [prefix for n in range(DEPTH + 1) for prefix in itertools.product((0, 1), repeat=n)]


def tables(seed: int):
    """p(0|prefix), q(0|prefix) and a head's confidence for every prefix."""
    rng = random.Random(seed)
    draw = lambda: {prefix: Fraction(rng.randrange(1, 10), 10) for prefix in PREFIXES}  # noqa: E731
    return draw(), draw(), draw()


def prob(table, prefix, token) -> Fraction:
    return table[prefix] if token == 0 else 1 - table[prefix]


def target_law(p, prefix=(), weight=Fraction(1)) -> dict:
    """Law of the first DEPTH + 1 tokens after ``prefix`` is given, times ``weight``."""
    if len(prefix) == DEPTH + 1:
        return {prefix: weight}
    law: dict = {}
    for token in (0, 1):
        law.update(target_law(p, (*prefix, token), weight * prob(p, prefix, token)))
    return law


def output_law(policy, p, q, head, ctx) -> dict:
    """Law of draft, trim and token-wise rejection sampling, completed by the target."""
    law = dict.fromkeys(itertools.product((0, 1), repeat=DEPTH + 1), Fraction(0))

    def emit(prefix, weight):
        for text, w in target_law(p, prefix, weight).items():
            law[text] += w

    for draft in itertools.product((0, 1), repeat=DEPTH):
        prefixes = [draft[:k] for k in range(DEPTH)]
        signals = {
            Signal.TOKEN_PROBABILITY: [prob(q, s, x) for s, x in zip(prefixes, draft, strict=True)],
            Signal.TOP1_PROBABILITY: [max(q[s], 1 - q[s]) for s in prefixes],
            Signal.CONFIDENCE: [head[s] for s in prefixes],
        }
        record = Draft(
            tokens=torch.tensor([draft]),
            lengths=torch.tensor([DEPTH]),
            q=None,
            signals={name: torch.tensor([list(map(float, values))]) for name, values in signals.items()},
        )
        verify_length = int(policy.trim(ctx, record, None))
        weight = Fraction(1)
        for prefix, token in zip(prefixes, draft, strict=True):
            weight *= prob(q, prefix, token)
        for k in range(verify_length):
            prefix, token = draft[:k], draft[k]
            accept = min(Fraction(1), prob(p, prefix, token) / prob(q, prefix, token))
            other = 1 - token  # all of the residual (p - q)+ is on it
            if accept < 1:
                emit((*prefix, other), weight * (1 - accept))
            weight *= accept
        emit(draft[:verify_length], weight)
    return law


EXACT = [
    *itertools.product(("token_probability", *PRE_TOKEN), ["after"], [False, True]),
    *itertools.product(PRE_TOKEN, ["before"], [False, True]),
]


@pytest.mark.parametrize(("signal", "stop", "survival"), EXACT)
@pytest.mark.parametrize("threshold", [0.3, 0.55, 0.75])
def test_output_law_is_the_targets_exactly(signal, stop, survival, threshold, step_context):
    policy = Confidence(depth=DEPTH, threshold=threshold, signal=signal, stop=stop, survival=survival)
    for seed in range(3):
        p, q, head = tables(seed)
        assert output_law(policy, p, q, head, step_context(1)) == target_law(p)


def test_dropping_by_the_drawn_token_is_class_d_and_biased(step_context):
    policy = Confidence(depth=DEPTH, threshold=0.5, signal="token_probability", stop="before")
    assert policy.lossless_class is LosslessClass.SAMPLED
    p, q, head = tables(0)
    law = output_law(policy, p, q, head, step_context(1))
    assert sum(law.values()) == 1
    assert law != target_law(p)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": 1.5}, r"threshold must be in \[0, 1\], got 1.5"),
        ({"threshold": float("nan")}, r"threshold must be in \[0, 1\], got nan"),
        ({"signal": "entropy"}, "signal must be a probability .*, got 'entropy'"),
        ({"signal": Signal.MARGIN}, "got 'margin'"),
        ({"signal": "loudness"}, "got 'loudness'"),
        ({"stop": "during"}, "stop must be 'after' or 'before', got 'during'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Confidence(depth=4, **settings)


def test_a_signal_may_be_given_as_itself():
    assert Confidence(depth=4, signal=Signal.CONFIDENCE) == Confidence(depth=4, signal="confidence")
    assert Confidence(depth=4, signal="confidence").needs == {Signal.CONFIDENCE}


@pytest.mark.parametrize("survival", [False, True])
def test_a_decision_for_256_rows_takes_less_than_a_millisecond(survival, step_context, random_draft):
    policy = Confidence(depth=8, threshold=0.4, survival=survival)
    ctx = step_context(256)
    draft = random_draft(torch.full((256,), 8), torch.Generator().manual_seed(0))
    times_s = []
    for _ in range(200):
        start_s = time.perf_counter()
        policy.proceed(ctx, 8, draft.signals, None)
        times_s.append(time.perf_counter() - start_s)
    assert min(times_s) <= bar_s(1e-3)
