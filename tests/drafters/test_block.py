"""Block drafts equal a plain re-implementation, for any heads, company, acceptance and pauses."""

from dataclasses import replace

import pytest
import torch

from dspark.drafters import block
from dspark.drafters.block import BlockDrafter
from dspark.drafters.fused_block import for_drafting
from dspark.models.base import PassRow
from dspark.models.linear import RowLinear
from dspark.models.native.binding import Kernels
from dspark.models.native.linear import MAX_ROWS, NativeLinear
from dspark.models.sources import default_cache_dir
from dspark.types import NO_TOKEN, Signal
from tests.drafters.block_tools import SPEC, VARIANTS, Plain, random_backbone
from tests.drafters.test_draft_model import always, batch_of

TEMPERATURE = 0.8
TOLERANCE = {"atol": 1e-5, "rtol": 1e-4}


class World:
    """Rows in slots whose features are fixed random numbers, however the passes cut them up."""

    def __init__(self, drafter, prompts, seed=0):
        self.drafter, self.rows = drafter, [list(prompt) for prompt in prompts]
        self.generator = torch.Generator().manual_seed(seed)
        self.spec = drafter.model.spec
        self.features = [self.noise(200) for _ in prompts]
        self.slots = list(range(len(prompts)))

    def noise(self, count):
        return torch.randn(count, self.spec.feature_size, generator=self.generator)

    def prefill(self, row, chunk):
        """The prompt in chunks; its last token, the first output, is not part of a pass yet."""
        end = len(self.rows[row]) - 1
        for start in range(0, end, chunk):
            stop = min(start + chunk, end)
            self.give(row, start, self.rows[row][start:stop], self.features[row][start:stop])

    def give(self, row, start, tokens, features):
        ours = PassRow(slot=self.slots[row], start=start, token_ids=tokens, num_logits=1)
        self.drafter.take_features([ours], features)

    def verify(self, row, drafted, num_accepted, bonus):
        """A pass over the last token and the drafts; features of what is rejected are garbage."""
        s, tokens = len(self.rows[row]) - 1, self.rows[row]
        kept = self.features[row][s : s + num_accepted + 1]
        garbage = 100 * self.noise(len(drafted) - num_accepted)
        self.give(row, s, [tokens[-1], *drafted], torch.cat([kept, garbage]))
        tokens.extend([*drafted[:num_accepted], bonus])

    def draft(self, plan, proceed=always):
        batch = batch_of(self.rows, frozenset(self.drafter.signals), TEMPERATURE, self.slots)
        return self.drafter.propose(batch, torch.tensor(plan), proceed)

    def check(self, draft, plan, plain):
        """Every row's q, tokens and confidence are the plain ones."""
        for row, depth in enumerate(plan):
            tokens = draft.tokens[row].tolist()
            assert int(draft.lengths[row]) == depth
            assert all(token == NO_TOKEN for token in tokens[depth:])
            if depth == 0:
                continue
            s = len(self.rows[row]) - 1
            wanted, confidences = plain.q_and_confidence(
                self.features[row][:s], self.rows[row][-1], tokens[:depth], TEMPERATURE
            )
            torch.testing.assert_close(draft.q[row, :depth].double(), wanted, **TOLERANCE)
            assert all(draft.q[row, k, tokens[k]] > 0 for k in range(depth)), "drawn from q itself"
            if self.spec.confidence_head:
                got = draft.signals[Signal.CONFIDENCE][row, :depth].double()
                torch.testing.assert_close(got, torch.stack(confidences), **TOLERANCE)


def prompts_of(*lengths):
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(SPEC.vocab_size, (n,), generator=generator).tolist() for n in lengths]


def opened(spec, num_slots=3, **kwargs):
    model = random_backbone(spec)
    drafter = BlockDrafter(model, **kwargs)
    drafter.open(num_slots, drafter.block_length, 200)
    return drafter, Plain.of(model)


both_paths = pytest.mark.parametrize("kernels", [None, "native"])


@both_paths
@pytest.mark.parametrize("variant", VARIANTS)
def test_three_context_lengths_in_one_batch_equal_the_plain_forward(variant, kernels):
    kernels = kernels and Kernels(default_cache_dir())
    drafter, plain = opened(VARIANTS[variant], kernels=kernels)
    assert (drafter._native is not None) == (kernels is not None and "window" not in variant)
    world = World(drafter, prompts_of(2, 19, 7))
    for row in range(3):
        world.prefill(row, chunk=6)
    for plan in ([5, 5, 5], [2, 0, 5]):
        world.check(world.draft(plan), plan, plain)


@both_paths
@pytest.mark.parametrize("variant", ["vanilla", "rnn", "unused_anchor"])
def test_any_acceptance_and_pauses_leave_the_drafter_in_step(variant, kernels):
    drafter, plain = opened(VARIANTS[variant], kernels=kernels and Kernels(default_cache_dir()))
    world = World(drafter, prompts_of(3, 12, 5))
    for row in range(3):
        world.prefill(row, chunk=4)
    generator = torch.Generator().manual_seed(1)
    accepted_counts = set()
    for step in range(60):
        paused = 4 <= step < 8  # every row at depth 0: features only
        plan = [0, 0, 0] if paused else torch.randint(6, (3,), generator=generator).tolist()
        drafts = [[], [], []]
        if any(plan):
            draft = world.draft(plan)
            world.check(draft, plan, plain)
            drafts = [draft.tokens[row, :depth].tolist() for row, depth in enumerate(plan)]
        for row, drafted in enumerate(drafts):
            trimmed = int(torch.randint(len(drafted) + 1, (1,), generator=generator)) if step % 2 else None
            verified = drafted[:trimmed]
            accepted = int(torch.randint(len(verified) + 1, (1,), generator=generator))
            accepted_counts.add(accepted)
            world.verify(row, verified, accepted, int(torch.randint(60, (1,), generator=generator)))
    assert accepted_counts == set(range(6)), "rejected at once, accepted whole, and everything between"
    plan = [5, 5, 5]
    world.check(world.draft(plan), plan, plain)


@both_paths
def test_rows_in_scattered_slots_and_a_slots_next_row(kernels):
    drafter, plain = opened(
        VARIANTS["vanilla"], num_slots=4, kernels=kernels and Kernels(default_cache_dir())
    )
    world = World(drafter, prompts_of(30, 9))
    world.slots = [3, 1]
    for row in range(2):
        world.prefill(row, chunk=50)
    world.check(world.draft([5, 5]), [5, 5], plain)
    drafter.release(3)
    after = World(drafter, prompts_of(4, 9), seed=9)
    after.slots = [3, 2]
    for row in range(2):
        after.prefill(row, chunk=2)
    after.check(after.draft([5, 5]), [5, 5], plain)


def test_a_second_draft_from_the_same_tokens_is_the_same():
    drafter, _ = opened(VARIANTS["vanilla"])
    world = World(drafter, prompts_of(8, 5, 3))
    for row in range(3):
        world.prefill(row, chunk=50)
    first, second = world.draft([5, 5, 5]), world.draft([5, 5, 5])
    assert torch.equal(first.tokens, second.tokens)
    assert torch.equal(first.q, second.q)


def test_what_is_planned_does_not_change_what_is_drafted():
    """The block has its trained length under any plan: a shallow plan is the head of a deep one."""
    drafter, _ = opened(VARIANTS["vanilla"])
    world = World(drafter, prompts_of(8, 8, 8))
    for row in range(3):
        world.prefill(row, chunk=50)
    deep, shallow = world.draft([5, 5, 5]), world.draft([1, 2, 3])
    for row, depth in enumerate([1, 2, 3]):
        assert shallow.tokens[row, :depth].tolist() == deep.tokens[row, :depth].tolist()
        torch.testing.assert_close(shallow.q[row, :depth], deep.q[row, :depth])


def test_another_block_length_is_another_draft_and_is_asked_for_by_name():
    drafter, _ = opened(VARIANTS["none"])
    short, _ = opened(VARIANTS["none"], block_length=2)
    draws = []
    for each, plan in ((drafter, [2]), (short, [2])):
        world = World(each, prompts_of(8))
        world.prefill(0, chunk=50)
        draws.append(world.draft(plan).q)
    assert short.max_depth == 2
    assert (draws[0] - draws[1]).abs().max() > 1e-3
    with pytest.raises(ValueError, match="block_length must be >= 1 draft"):
        BlockDrafter(random_backbone(SPEC), block_length=0)


def test_a_policy_stops_rows_and_sees_the_signals_of_every_token():
    drafter, plain = opened(VARIANTS["reduced_vocabulary"])
    world = World(drafter, prompts_of(8, 5, 3))
    for row in range(3):
        world.prefill(row, chunk=50)
    seen = {}

    def stop_second_row(k, signals):
        seen[k] = {signal: values.clone() for signal, values in signals.items()}
        return torch.tensor([True, k < 2, True])

    draft = world.draft([5, 5, 1], stop_second_row)
    world.check(draft, [5, 2, 1], plain)
    assert sorted(seen) == [1, 2, 3, 4, 5]
    for signal, values in draft.signals.items():
        assert torch.equal(seen[2][signal], values[:, :2].where(seen[2][signal].isfinite(), torch.nan)) or (
            torch.equal(torch.nan_to_num(seen[2][signal]), torch.nan_to_num(values[:, :2]))
        )
        assert values[1, 2:].isnan().all()
        assert values[0].isfinite().all()


def test_signals_are_those_of_the_drafters_own_softmax():
    drafter, plain = opened(VARIANTS["reduced_vocabulary"])
    world = World(drafter, prompts_of(8))
    world.prefill(0, chunk=50)
    draft = world.draft([3])
    tokens = draft.tokens[0].tolist()
    q, _ = plain.q_and_confidence(world.features[0][:7], world.rows[0][-1], tokens, temperature=1.0)
    support = q[:, plain.target_ids()]
    top = support.sort(descending=True).values
    wanted = {
        Signal.TOP1_PROBABILITY: top[:, 0],
        Signal.ENTROPY: -(support * support.log()).sum(-1),
        Signal.MARGIN: (top[:, 0] / top[:, 1]).log(),
        Signal.TOKEN_PROBABILITY: q[range(3), tokens],
    }
    for signal, values in wanted.items():
        torch.testing.assert_close(draft.signals[signal][0].double(), values, **TOLERANCE)


def test_a_reduced_vocabulary_gives_nothing_to_the_tokens_outside_and_sums_to_one():
    drafter, plain = opened(VARIANTS["reduced_vocabulary"])
    world = World(drafter, prompts_of(8, 6, 2))
    for row in range(3):
        world.prefill(row, chunk=50)
    for _ in range(2):  # the second draft writes over the first one's logits
        draft = world.draft([5, 3, 4])
        outside = [token for token in range(SPEC.vocab_size) if token not in plain.target_ids()]
        assert len(outside) == 61 - 20
        for row, depth in enumerate([5, 3, 4]):
            assert draft.q[row, :depth][:, outside].abs().max() == 0
            torch.testing.assert_close(draft.q[row, :depth].sum(-1), torch.ones(depth))


def test_with_kernels_a_rows_states_are_the_same_bits_in_any_company():
    laws = []
    for order in ([0], [2, 0, 1], [1, 2, 0]):
        drafter, _ = opened(SPEC, kernels=Kernels(default_cache_dir()))
        world = World(drafter, [prompts_of(6, 21, 40)[row] for row in order])
        for place, row in enumerate(order):
            world.features[place] = torch.randn(
                200, SPEC.feature_size, generator=torch.Generator().manual_seed(row)
            )
            world.prefill(place, chunk=7)
        hidden = drafter._hidden(
            batch_of(world.rows, frozenset(), TEMPERATURE, world.slots), list(range(len(order)))
        )
        laws.append(hidden[order.index(0)].clone())
    assert torch.equal(laws[0], laws[1])
    assert torch.equal(laws[0], laws[2])


def test_the_kernels_refuse_what_lies_outside_the_cache():
    drafter, _ = opened(SPEC, kernels=Kernels(default_cache_dir()))
    native = drafter._native
    with pytest.raises(ValueError, match="must lie in"):
        native.run([0], [native._max_tokens - 2], [[1, 7, 7, 7, 7]])
    with pytest.raises(ValueError, match="must lie in"):
        native.run([3], [4], [[1, 7, 7, 7, 7]])
    with pytest.raises(ValueError, match="token ids must lie in"):
        native.run([0], [4], [[SPEC.vocab_size, 7, 7, 7, 7]])


@pytest.mark.parametrize("kernels", [None, "native"])
def test_layers_made_for_drafting_give_the_same_and_leave_the_model_alone(kernels):
    kernels = kernels and Kernels(default_cache_dir())
    model = random_backbone(VARIANTS["llama_layers"])
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    kinds = [type(module) for module in model.modules()]
    fast = for_drafting(model, kernels)
    assert any(
        isinstance(module, RowLinear if kernels is None else NativeLinear) for module in fast.modules()
    )
    features, ids = torch.randn(1, 9, SPEC.feature_size), torch.tensor([[3, 7, 7, 7, 7]])
    positions = torch.arange(9, 14)[None]
    outputs = []
    for each in (model, fast):
        context = each.context_kv(each.context(features), torch.arange(9)[None])
        outputs.append(each.lm_head(each.block(ids, positions, context, None)))
    torch.testing.assert_close(outputs[1], outputs[0], atol=1e-5, rtol=1e-5)
    assert [type(module) for module in model.modules()] == kinds
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("rows", [1, 7, MAX_ROWS, MAX_ROWS + 1])
def test_a_native_linear_is_the_linear_on_the_same_weights(rows):
    linear = torch.nn.Linear(40, 12)
    native = NativeLinear(linear, Kernels(default_cache_dir()))
    x = torch.randn(2, rows, 40, generator=torch.Generator().manual_seed(0)).transpose(0, 1)[:, :1]
    torch.testing.assert_close(native(x), linear(x), atol=1e-5, rtol=1e-5)
    assert [tuple(share.shape) for share in native.shares(x, [8, 4])] == [(rows, 1, 8), (rows, 1, 4)]
    assert native.weight is linear.weight


def test_without_a_confidence_head_there_is_no_such_signal():
    assert Signal.CONFIDENCE in BlockDrafter(random_backbone(SPEC)).signals
    assert Signal.CONFIDENCE not in BlockDrafter(random_backbone(VARIANTS["none"])).signals


def test_unread_signals_are_not_computed_and_greedy_rows_need_no_q():
    drafter, _ = opened(SPEC)
    world = World(drafter, prompts_of(8))
    world.prefill(0, chunk=50)
    draft = drafter.propose(batch_of(world.rows), torch.tensor([5]), always)
    assert dict(draft.signals) == {}
    assert draft.q is None


def test_a_missing_pass_is_noticed():
    drafter, _ = opened(SPEC)
    world = World(drafter, prompts_of(8))
    with pytest.raises(AssertionError, match="lacks features"):
        world.draft([3])


@both_paths
def test_drafts_end_where_the_drafters_context_does_and_nothing_is_kept_past_it(kernels):
    spec = replace(SPEC, max_context=24)
    model = random_backbone(spec)
    drafter = BlockDrafter(model, kernels=kernels and Kernels(default_cache_dir()))
    drafter.open(2, drafter.block_length, 200)
    assert drafter._cache.max_tokens == 24 + 5
    world = World(drafter, prompts_of(24, 60))
    world.prefill(0, chunk=9)
    world.prefill(1, chunk=9)
    world.check(world.draft([5, 0]), [5, 0], Plain.of(model))
    assert sum(piece.shape[0] for _, piece in drafter._pending._pieces[1]) == 0


@both_paths
def test_long_prompts_are_caught_up_with_in_pieces(kernels, monkeypatch):
    monkeypatch.setattr(block, "CATCH_UP_CHUNK", 7)
    drafter, plain = opened(SPEC, kernels=kernels and Kernels(default_cache_dir()))
    world = World(drafter, prompts_of(3, 40, 22))
    for row in range(3):
        world.prefill(row, chunk=16)
    world.check(world.draft([5, 5, 5]), [5, 5, 5], plain)


def test_a_slots_next_row_meets_nothing_of_the_last_one():
    drafter, plain = opened(SPEC)
    drafter._cache._tokens[:, :, : 2 * drafter._cache.max_tokens] = float("nan")  # of a broken row in slot 1
    drafter._done[1] = 200
    drafter.release(0)
    drafter.release(1)
    drafter._cache.clear(0, drafter._cache.max_tokens)
    world = World(drafter, prompts_of(30, 4))
    for row in range(2):
        world.prefill(row, chunk=50)
    world.check(world.draft([5, 5]), [5, 5], plain)


def test_states_that_are_not_finite_are_named():
    drafter, _ = opened(SPEC)
    world = World(drafter, prompts_of(8))
    world.features[0][3] = float("inf")
    world.prefill(0, chunk=50)
    with pytest.raises(ValueError, match="hidden states must be finite"):
        world.draft([2])


def test_features_of_another_target_are_refused_by_the_kernels():
    drafter, _ = opened(SPEC, kernels=Kernels(default_cache_dir()))
    wrong = torch.zeros(3, SPEC.feature_size + 1)
    with pytest.raises(ValueError, match="was made for another target"):
        drafter._native.write_context(wrong, [0, 0, 0], [0, 1, 2])
