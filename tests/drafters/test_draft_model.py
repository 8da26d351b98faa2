"""The draft model is in step after any depths, feeds only what is new, and drafts from its own q."""

import pytest
import torch

from dspark.drafters import draft_model
from dspark.drafters.base import DraftBatch
from dspark.drafters.draft_model import DraftModelDrafter
from dspark.drafters.signals import LogitSignals
from dspark.models.base import PassRow, Target
from dspark.types import NO_TOKEN, SamplingParams, Signal
from dspark.verification import Rejection
from dspark.verification.base import SampledRow
from tests.engine.tools import load, random_prompts


class Counting(Target):
    """A target that notes how many tokens each pass feeds."""

    def __init__(self, inner):
        self.inner, self.fed = inner, []
        self.vocab_size, self.max_context = inner.vocab_size, inner.max_context
        self.eos_token_ids, self.device, self.dtype = inner.eos_token_ids, inner.device, inner.dtype

    def new_cache(self, num_slots, max_tokens):
        return self.inner.new_cache(num_slots, max_tokens)

    def forward(self, rows, cache):
        self.fed.append([len(row.token_ids) for row in rows])
        return self.inner.forward(rows, cache)


@pytest.fixture(scope="module")
def model(tiny_llama_drafter):
    return load(tiny_llama_drafter)


def batch_of(rows, needs=frozenset(), temperature=0.0, slots=None):
    sampled = [
        SampledRow(
            params=SamplingParams(temperature=temperature),
            tokens=row,
            num_prompt=1,
            eos_token_ids=(),
            seed=i,
        )
        for i, row in enumerate(rows)
    ]
    return DraftBatch(
        slots=torch.tensor(slots if slots is not None else list(range(len(rows)))),
        tokens=rows,
        lengths=torch.tensor([len(row) for row in rows]),
        sampler=Rejection().draft_sampler(sampled),
        seeds=torch.arange(len(rows)),
        needs=needs,
    )


def always(k, signals):
    return torch.tensor(True)


def greedy_continuation(model, row, count):
    """By single full passes, no cache reuse."""
    row = list(row)
    for _ in range(count):
        cache = model.new_cache(1, len(row))
        logits = model.forward([PassRow(slot=0, start=0, token_ids=row, num_logits=1)], cache)
        row.append(int(logits[0].argmax()))
    return row[-count:]


def test_ragged_plans_draft_each_rows_own_greedy_continuation(model):
    rows = random_prompts(4, low=4)
    drafter = DraftModelDrafter(model)
    drafter.open(4, 5, 100)
    draft = drafter.propose(batch_of(rows), torch.tensor([3, 0, 5, 1]), always)
    assert draft.lengths.tolist() == [3, 0, 5, 1]
    for i, (row, depth) in enumerate(zip(rows, [3, 0, 5, 1], strict=True)):
        wanted = greedy_continuation(model, row, depth) if depth else []
        assert draft.tokens[i].tolist() == wanted + [NO_TOKEN] * (5 - depth)
    assert draft.q is None, "greedy rows are verified by comparing tokens"


def test_only_the_difference_is_fed_after_acceptance_rejection_and_pause(model):
    counting = Counting(model)
    drafter = DraftModelDrafter(counting)
    drafter.open(1, 4, 100)
    row = random_prompts(1, low=30, high=31)[0]
    plan = torch.tensor([3])

    def propose(row):
        counting.fed.clear()
        draft = drafter.propose(batch_of([row]), plan, always).tokens[0].tolist()
        assert draft == greedy_continuation(model, row, 3)
        return draft, [sum(fed) for fed in counting.fed]

    draft, fed = propose(row)
    assert fed == [30, 1, 1], "the whole prompt, then each draft but the last"
    row = [*row, *draft, 7]  # all accepted, and a bonus token
    draft, fed = propose(row)
    assert fed == [2, 1, 1], "the last draft, which was never fed, and the bonus token"
    row = [*row, draft[0], (draft[1] + 1) % 256]  # second draft rejected
    draft, fed = propose(row)
    assert fed == [1, 1, 1]
    row = [*row, *random_prompts(1, seed=5, low=20, high=21)[0]]  # twenty steps at depth 0
    _, fed = propose(row)
    assert fed == [20, 1, 1], "what the pause left out"


def test_a_long_gap_is_fed_in_chunks(model, monkeypatch):
    monkeypatch.setattr(draft_model, "CATCH_UP_CHUNK", 16)
    counting = Counting(model)
    drafter = DraftModelDrafter(counting)
    drafter.open(2, 2, 100)
    rows = [*random_prompts(1, low=39, high=40), *random_prompts(1, seed=1, low=5, high=6)]
    draft = drafter.propose(batch_of(rows), torch.tensor([2, 2]), always)
    assert draft.tokens.tolist() == [greedy_continuation(model, row, 2) for row in rows]
    assert [sum(fed) for fed in counting.fed[:-2]] == [16, 16], "44 tokens in all, 12 are left for the last"
    assert counting.fed[-2:] == [[7, 5], [1, 1]]


def test_a_slot_forgets_its_former_row(model):
    drafter = DraftModelDrafter(model)
    drafter.open(1, 3, 100)
    first, second = random_prompts(2, low=10)
    drafter.propose(batch_of([first]), torch.tensor([3]), always)
    drafter.release(0)
    draft = drafter.propose(batch_of([second]), torch.tensor([3]), always)
    assert draft.tokens[0].tolist() == greedy_continuation(model, second, 3)


def test_the_policy_can_stop_a_row_while_others_go_on(model):
    drafter = DraftModelDrafter(model)
    drafter.open(2, 4, 100)
    rows = random_prompts(2, low=6)

    def stop_first_row(k, signals):
        return torch.tensor([k < 2, True])

    draft = drafter.propose(batch_of(rows), torch.tensor([4, 4]), stop_first_row)
    assert draft.lengths.tolist() == [2, 4]
    assert draft.tokens[1].tolist() == greedy_continuation(model, rows[1], 4)


def test_q_is_what_was_sampled_from_and_signals_follow_the_definition(model):
    needs = frozenset({Signal.TOP1_PROBABILITY, Signal.ENTROPY, Signal.MARGIN, Signal.TOKEN_PROBABILITY})
    drafter = DraftModelDrafter(model)
    drafter.open(2, 2, 100)
    rows = random_prompts(2, low=6)
    draft = drafter.propose(batch_of(rows, needs, temperature=0.7), torch.tensor([2, 1]), always)
    assert draft.q is not None
    for i, row in enumerate(rows):
        cache = model.new_cache(1, len(row))
        logits = model.forward([PassRow(slot=0, start=0, token_ids=row, num_logits=1)], cache)[0].double()
        torch.testing.assert_close(
            draft.q[i, 0].double(), torch.softmax(logits / 0.7, -1), atol=1e-6, rtol=1e-4
        )
        p = torch.softmax(logits, -1)
        top = logits.sort(descending=True).values
        wanted = {
            Signal.TOP1_PROBABILITY: p.max(),
            Signal.ENTROPY: -(p * p.log()).sum(),
            Signal.MARGIN: top[0] - top[1],
            Signal.TOKEN_PROBABILITY: p[draft.tokens[i, 0]],
        }
        for signal, value in wanted.items():
            assert float(draft.signals[signal][i, 0]) == pytest.approx(float(value), rel=1e-4), signal
    assert torch.isnan(draft.signals[Signal.MARGIN][1, 1]), "row 1 drafted one token"


def test_the_margin_of_a_certain_token_is_infinite():
    signals = LogitSignals(1, 1, frozenset({Signal.MARGIN}), torch.device("cpu"))
    signals.record(torch.tensor([0]), 1, torch.zeros(1, 1), torch.tensor([0]))
    assert signals.all()[Signal.MARGIN].tolist() == [[torch.inf]]


def test_unread_signals_are_not_computed(model):
    drafter = DraftModelDrafter(model)
    drafter.open(1, 2, 100)
    draft = drafter.propose(batch_of([[1, 2, 3]]), torch.tensor([2]), always)
    assert dict(draft.signals) == {}
