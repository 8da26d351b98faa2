"""The drafter follows the description at any raggedness, acceptance, pause and stop, with few passes."""

import hashlib

import pytest
import torch

from dspark.drafters import eagle3_pairs
from dspark.drafters.base import DraftBatch
from dspark.drafters.eagle3 import Eagle3Drafter
from dspark.models.base import PassRow
from dspark.types import NO_TOKEN, SamplingParams, Signal
from dspark.verification import Rejection
from dspark.verification.base import SampledRow
from tests.drafters.eagle3_tools import DRAFT_TOKENS, NORMS, VOCAB, WIDTH, Reference, random_head, tiny_spec
from tests.engine.tools import load


class Noting:
    """A sampler that draws greedily and keeps the logits it was given, by row and depth."""

    needs_q = False

    def __init__(self):
        self.seen = {}

    def draw(self, rows, k, logits, drafted):
        for row, own in zip(rows.tolist(), logits, strict=True):
            self.seen[row, k] = own.clone()
        return logits.argmax(-1), None


def feature(prefix):
    """Features of a prefix's last token: they depend on every token of it, as a target's do."""
    digest = hashlib.sha256(repr(list(prefix)).encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    return torch.randn(2 * WIDTH, generator=generator)


def features_of(tokens, start=0):
    return torch.stack([feature(tokens[: at + 1]) for at in range(start, len(tokens))])


def hand_over(drafter, *passes):
    """One pass of the target: each of ``passes`` is slot, start and the row's tokens up to its end."""
    rows = [PassRow(slot=s, start=start, token_ids=row[start:], num_logits=1) for s, start, row in passes]
    drafter.take_features(rows, torch.cat([features_of(row, start) for _, start, row in passes]))


def batch_of(slots, rows, sampler=None, needs=frozenset()):
    return DraftBatch(
        slots=torch.tensor(slots),
        tokens=rows,
        lengths=torch.tensor([len(row) for row in rows]),
        sampler=sampler or Noting(),
        seeds=torch.arange(len(rows)),
        needs=needs,
    )


def always(k, signals):
    return torch.tensor(True)


def check_row(model, seen, row, tokens, drafted):
    """All logits that a row was drawn from are the reference's."""
    wanted = Reference(model).chain(features_of(tokens[:-1]), tokens, drafted[:-1])
    if model.d2t is not None:
        wanted = torch.full((len(wanted), VOCAB), -torch.inf, dtype=torch.float64).index_copy_(
            1, DRAFT_TOKENS, wanted
        )
    got = torch.stack([seen[row, k] for k in range(1, len(drafted) + 1)])
    torch.testing.assert_close(got.double(), wanted, atol=1e-5, rtol=1e-5)


def random_rows(lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCAB, (n,), generator=generator).tolist() for n in lengths]


@pytest.mark.parametrize("norms", NORMS)
@pytest.mark.parametrize("reduced", [False, True], ids=["whole", "reduced"])
def test_three_context_lengths_in_one_batch(norms, reduced):
    spec = tiny_spec(norms=NORMS[norms], draft_vocab_size=len(DRAFT_TOKENS) if reduced else VOCAB)
    model = random_head(spec)
    drafter = Eagle3Drafter(model)
    drafter.open(4, 4, 100)
    rows = random_rows([2, 17, 9])
    hand_over(drafter, *((slot, 0, row[:-1]) for slot, row in zip([0, 1, 3], rows, strict=True)))
    sampler = Noting()
    draft = drafter.propose(batch_of([0, 1, 3], rows, sampler), torch.tensor([4, 2, 3]), always)
    assert draft.lengths.tolist() == [4, 2, 3]
    assert draft.tokens[1, 2:].tolist() == [NO_TOKEN] * 2
    assert draft.q is None, "the sampler gave none"
    for i, row in enumerate(rows):
        drafted = draft.tokens[i, : draft.lengths[i]].tolist()
        check_row(model, sampler.seen, i, row, drafted)
        assert not reduced or set(drafted) <= set(DRAFT_TOKENS.tolist())


def test_in_step_after_any_acceptance_pause_stop_and_new_occupant():
    """Every draft of a long random history equals the reference's, computed from the tokens alone."""
    model = random_head(tiny_spec(qk_norm=True))
    drafter = Eagle3Drafter(model)
    drafter.open(3, 4, 200)
    generator = torch.Generator().manual_seed(3)

    def pick(high):
        return int(torch.randint(high, (), generator=generator))

    rows = random_rows([5, 3, 11])
    for slot, row in enumerate(rows):  # prompts in two chunks
        hand_over(drafter, (slot, 0, row[: len(row) // 2]))
        hand_over(drafter, (slot, len(row) // 2, row[:-1]))
    checked = pauses = stopped = rejected = 0
    for step in range(14):
        plan = [0 if pick(3) == 0 else 1 + pick(4) for _ in rows]
        drafts = [[] for _ in rows]
        if any(plan):
            stops = torch.tensor([1 + pick(4) for _ in rows])
            sampler = Noting()
            draft = drafter.propose(
                batch_of([0, 1, 2], rows, sampler), torch.tensor(plan), lambda k, _, stops=stops: stops > k
            )
            assert draft.lengths.tolist() == [min(p, s) for p, s in zip(plan, stops.tolist(), strict=True)]
            drafts = [draft.tokens[i, :n].tolist() for i, n in enumerate(draft.lengths.tolist())]
            for i, drafted in enumerate(drafts):
                if drafted:
                    check_row(model, sampler.seen, i, rows[i], drafted)
                    checked += 1
                stopped += 0 < len(drafted) < plan[i]
        pauses += plan.count(0)
        hand_over(drafter, *((i, len(row) - 1, row + drafts[i]) for i, row in enumerate(rows)))
        for i, row in enumerate(rows):
            accepted = pick(len(drafts[i]) + 1)
            rejected += len(drafts[i]) - accepted
            row += [*drafts[i][:accepted], pick(VOCAB)]
        if step == 8:  # slot 1 gets a new, shorter row
            drafter.release(1)
            rows[1] = random_rows([3], seed=9)[0]
            hand_over(drafter, (1, 0, rows[1][:-1]))
    assert min(checked, pauses, stopped, rejected) > 5, "the history should have some of everything"


def test_drafting_again_from_the_same_tokens_gives_the_same():
    model = random_head(tiny_spec())
    drafter = Eagle3Drafter(model)
    drafter.open(1, 3, 100)
    rows = random_rows([8])
    hand_over(drafter, (0, 0, rows[0][:-1]))
    first = drafter.propose(batch_of([0], rows), torch.tensor([3]), always)
    again = drafter.propose(batch_of([0], rows), torch.tensor([3]), always)
    assert torch.equal(first.tokens, again.tokens)


def test_a_long_gap_is_caught_up_with_in_chunks(monkeypatch):
    monkeypatch.setattr(eagle3_pairs, "CATCH_UP_CHUNK", 6)
    model = random_head(tiny_spec())
    drafter = Eagle3Drafter(model)
    drafter.open(2, 2, 100)
    rows = random_rows([20, 3])
    hand_over(drafter, (0, 0, rows[0][:-1]), (1, 0, rows[1][:-1]))
    sizes, pairs = [], drafter.model.pairs

    def counted(g, token_ids):
        sizes.append(len(token_ids))
        return pairs(g, token_ids)

    monkeypatch.setattr(drafter.model, "pairs", counted)
    sampler = Noting()
    draft = drafter.propose(batch_of([0, 1], rows, sampler), torch.tensor([2, 2]), always)
    # 19 and 2 pairs: all but the last of each in pieces of 6, then both last ones, then a chain's
    assert sizes == [6, 6, 6, 1, 2, 2]
    for i, row in enumerate(rows):
        check_row(model, sampler.seen, i, row, draft.tokens[i].tolist())


@pytest.mark.parametrize(("stop_after", "passes"), [(7, 7), (3, 3), (1, 1)])
def test_seven_drafts_take_six_passes_more_and_a_stop_saves_the_rest(monkeypatch, stop_after, passes):
    drafter = Eagle3Drafter(random_head(tiny_spec()))
    drafter.open(1, 7, 100)
    rows = random_rows([9])
    hand_over(drafter, (0, 0, rows[0][:-1]))
    fed, step = [], drafter.model.step

    def counted(g, *rest):
        fed.append(len(g))
        return step(g, *rest)

    monkeypatch.setattr(drafter.model, "step", counted)
    draft = drafter.propose(
        batch_of([0], rows), torch.tensor([7]), lambda k, _: torch.tensor([k < stop_after])
    )
    assert draft.lengths.tolist() == [stop_after]
    assert fed == [1] * passes, "the first comes with catching up, each further draft takes one"


def test_rows_without_a_plan_and_depth_0_cost_no_pass(monkeypatch):
    drafter = Eagle3Drafter(random_head(tiny_spec()))
    drafter.open(2, 2, 100)
    rows = random_rows([9, 6])
    fused, fuse = [], drafter.model.fuse
    monkeypatch.setattr(drafter.model, "fuse", lambda x: fused.append(len(x)) or fuse(x))
    hand_over(drafter, (0, 0, rows[0][:-1]), (1, 0, rows[1][:-1]))
    assert fused == [], "features are only kept"
    drafter.propose(batch_of([0, 1], rows), torch.tensor([0, 2]), always)
    assert fused == [5], "the second row's features, not the first one's eight"


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_q_of_a_reduced_vocabulary_is_what_was_sampled_from(temperature):
    """Over the target's vocabulary: 0 where the head has no token, else the softmax of its logits."""
    model = random_head(tiny_spec(draft_vocab_size=len(DRAFT_TOKENS)))
    drafter = Eagle3Drafter(model)
    drafter.open(2, 3, 100)
    rows = random_rows([9, 4])
    hand_over(drafter, (0, 0, rows[0][:-1]), (1, 0, rows[1][:-1]))
    params = SamplingParams(temperature=temperature)
    sampled = [
        SampledRow(params=params, tokens=row, num_prompt=1, eos_token_ids=(), seed=i)
        for i, row in enumerate(rows)
    ]
    sampler = Rejection().draft_sampler(sampled)
    draft = drafter.propose(batch_of([0, 1], rows, sampler), torch.tensor([3, 2]), always)
    assert draft.q.shape == (2, 3, VOCAB)
    for i, row in enumerate(rows):
        drafted = draft.tokens[i, : draft.lengths[i]].tolist()
        logits = Reference(model).chain(features_of(row[:-1]), row, drafted[:-1])
        for k, token in enumerate(drafted):
            wanted = torch.zeros(VOCAB, dtype=torch.float64)
            wanted[DRAFT_TOKENS] = torch.softmax(logits[k] / temperature, -1)
            torch.testing.assert_close(draft.q[i, k].double(), wanted, atol=1e-6, rtol=1e-4)
            assert draft.q[i, k, token] > 0


def test_signals_are_of_the_heads_own_logits():
    needs = Eagle3Drafter.signals
    model = random_head(tiny_spec(draft_vocab_size=len(DRAFT_TOKENS)))
    drafter = Eagle3Drafter(model)
    drafter.open(1, 2, 100)
    rows = random_rows([9])
    hand_over(drafter, (0, 0, rows[0][:-1]))
    draft = drafter.propose(batch_of([0], rows, needs=needs), torch.tensor([2]), always)
    drafted = draft.tokens[0].tolist()
    logits = Reference(model).chain(features_of(rows[0][:-1]), rows[0], drafted[:-1])
    for k, token in enumerate(drafted):
        p = torch.softmax(logits[k], -1)
        top = logits[k].sort(descending=True).values
        wanted = {
            Signal.TOP1_PROBABILITY: p.max(),
            Signal.ENTROPY: -(p * p.log()).sum(),
            Signal.MARGIN: top[0] - top[1],
            Signal.TOKEN_PROBABILITY: p[DRAFT_TOKENS.tolist().index(token)],
        }
        assert set(draft.signals) == set(wanted)
        for signal, value in wanted.items():
            assert float(draft.signals[signal][0, k]) == pytest.approx(float(value), rel=1e-4), signal


def test_the_targets_kernels_draft_the_same(tiny_llama):
    kernels = load(tiny_llama, numerics="fast").native
    if kernels is None:
        pytest.skip("no CPU kernels for this machine")
    model = random_head(tiny_spec(qk_norm=True))
    drafter = Eagle3Drafter(model, kernels.kernels)
    drafter.open(2, 4, 100)
    rows = random_rows([9, 17])
    hand_over(drafter, (0, 0, rows[0][:-1]), (1, 0, rows[1][:-1]))
    sampler = Noting()
    draft = drafter.propose(batch_of([0, 1], rows, sampler), torch.tensor([4, 4]), always)
    for i, row in enumerate(rows):
        check_row(model, sampler.seen, i, row, draft.tokens[i].tolist())


def test_a_model_in_training_keeps_its_own_layers():
    model = random_head(tiny_spec())
    kinds = [type(module) for module in model.modules()]
    drafter = Eagle3Drafter(model)
    assert [type(module) for module in model.modules()] == kinds
    assert drafter.model.fc.weight.data_ptr() == model.fc.weight.data_ptr(), "one set of weights"
