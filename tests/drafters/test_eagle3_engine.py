"""In the real engine: text is that of plain decoding, and every draft is the description's own."""

import dataclasses

import pytest
import torch

from dspark.drafters.base import Drafter
from dspark.drafters.eagle3 import Eagle3Drafter
from dspark.engine.engine import Engine
from dspark.models.base import PassRow
from dspark.policies.confidence_stop import ConfidenceStop
from dspark.policies.fixed import Fixed
from dspark.types import SamplingParams
from dspark.verification import Coupled, Greedy, Rejection
from tests.drafters.eagle3_tools import Reference, random_head, tiny_spec
from tests.engine.tools import HalfTrim, Jagged, load, outputs, random_prompts, rows_of

PROMPTS = [[65], *random_prompts(5, high=30)]
GREEDY = SamplingParams(max_new_tokens=12)
SAMPLED = SamplingParams(max_new_tokens=12, temperature=0.9, top_p=0.95, repetition_penalty=1.1)
DRAFTED = torch.arange(0, 259, 2)
"""Half of the tiny target's vocabulary."""


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def target(request, tiny_llama, tiny_qwen3):
    return load(tiny_llama if request.param == "llama" else tiny_qwen3)


def head_for(target, *, reduced, **changes):
    """A head with the target's tables; random otherwise, so that most drafts are wrong."""
    spec = tiny_spec(
        hidden_size=64,
        vocab_size=target.vocab_size,
        draft_vocab_size=len(DRAFTED) if reduced else target.vocab_size,
        num_target_layers=2,
        feature_layers=(-1, 1),
        qk_norm=not reduced,
        **changes,
    )
    model = random_head(spec, d2t=DRAFTED - torch.arange(len(DRAFTED)))
    head = target.model.get_output_embeddings().weight
    model.share(target.model.get_input_embeddings().weight, head[DRAFTED] if reduced else head)
    return model


class Checked(Drafter):
    """Compares every draft with the reference's, from the target's features of the committed tokens."""

    deterministic = False
    autoregressive = True
    vocab_size = None
    max_context = None

    def __init__(self, target, model):
        self.inner, self.reference, self.target = Eagle3Drafter(model), Reference(model), target
        self.signals, self.feature_layers = self.inner.signals, self.inner.feature_layers
        self.open, self.take_features, self.release = (
            self.inner.open,
            self.inner.take_features,
            self.inner.release,
        )
        self.checked = 0

    def open(self, num_slots, max_depth, max_context): ...

    def take_features(self, rows, features): ...

    def release(self, slot): ...

    def propose(self, batch, plan, proceed):
        draft = self.inner.propose(batch, plan, proceed)
        for i, count in enumerate(draft.lengths.tolist()):
            if count == 0:
                continue
            tokens, drafted = list(batch.tokens[i]), draft.tokens[i, :count].tolist()
            cache = self.target.new_cache(1, len(tokens))
            row = PassRow(slot=0, start=0, token_ids=tokens, num_logits=1)
            _, features = self.target.forward_with_features([row], cache, self.feature_layers)
            logits = self.reference.chain(features[:-1], tokens, drafted[:-1])
            assert DRAFTED[logits.argmax(-1)].tolist() == drafted
            self.checked += 1
        return draft


@pytest.mark.parametrize(
    "policy", [Fixed(depth=3), Jagged(), HalfTrim()], ids=["fixed", "jagged", "half_trim"]
)
@pytest.mark.parametrize("reduced", [False, True], ids=["whole", "reduced"])
def test_the_text_is_that_of_plain_decoding(target, policy, reduced):
    drafter = Eagle3Drafter(head_for(target, reduced=reduced))
    for params, rule in ((GREEDY, Greedy()), (GREEDY, Rejection()), (SAMPLED, Coupled())):
        plain = outputs(Engine(target, verification=Coupled(), max_batch_size=1), PROMPTS, params)[0]
        engine = Engine(target, drafter, policy, verification=rule, max_batch_size=3, prefill_chunk=7)
        got, records = outputs(engine, PROMPTS, params)
        assert got == plain
        rows = rows_of(records)
        assert sum(row.drafted for row in rows) > 20, "nothing was drafted, the test shows nothing"


@pytest.mark.parametrize("policy", [Jagged(), HalfTrim()], ids=["jagged", "half_trim"])
def test_every_draft_is_made_of_the_committed_tokens_features(tiny_llama, policy):
    target = load(tiny_llama)
    drafter = Checked(target, head_for(target, reduced=True))
    engine = Engine(target, drafter, policy, max_batch_size=3, prefill_chunk=7)
    outputs(engine, PROMPTS[:4], dataclasses.replace(GREEDY, max_new_tokens=9))
    assert drafter.checked > 10


def test_a_rule_that_stops_after_a_token_saves_passes(tiny_llama, monkeypatch):
    target = load(tiny_llama)
    drafter = Eagle3Drafter(head_for(target, reduced=True))
    passes, step = [], drafter.model.step
    monkeypatch.setattr(drafter.model, "step", lambda g, *rest: passes.append(len(g)) or step(g, *rest))
    policy = ConfidenceStop(depth=6, threshold=0.1)
    engine = Engine(target, drafter, policy, max_batch_size=3)
    _, records = outputs(engine, PROMPTS, SAMPLED)
    drafted = [row.drafted for row in rows_of(records)]
    assert len(set(drafted)) > 2, "depth should differ from row to row"
    assert sum(passes) == sum(drafted), "one pair a draft, and none for a token that was not drafted"


def test_drafts_end_where_the_heads_context_does(tiny_llama):
    target = load(tiny_llama)
    drafter = Eagle3Drafter(head_for(target, reduced=True, max_context=16))
    engine = Engine(target, drafter, Fixed(depth=3), verification=Coupled(), max_batch_size=2)
    got, records = outputs(engine, PROMPTS[:3], GREEDY)
    assert got == outputs(Engine(target, verification=Coupled()), PROMPTS[:3], GREEDY)[0]
    rows = rows_of(records)
    assert max(row.context + row.drafted for row in rows if row.drafted) == 16
    assert all(row.drafted == 0 for row in rows if row.context >= 16)
    assert any(row.planned == 3 for row in rows if row.context >= 16)
