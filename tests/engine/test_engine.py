"""How the engine is driven: streams, cancellation, arrivals, admission, records and refusals."""

import pytest
import torch

from dspark.drafters.draft_model import DraftModelDrafter
from dspark.drafters.ngram import NgramDrafter
from dspark.drafters.synthetic import SyntheticDrafter
from dspark.engine.clock import Clock
from dspark.engine.engine import Engine
from dspark.policies.batch_table import BatchTable
from dspark.policies.confidence import Confidence
from dspark.policies.fixed import Fixed
from dspark.types import FinishReason, Request, SamplingParams, Signal
from dspark.verification import Coupled, Greedy, SyntheticAcceptance
from tests.engine.tools import Jagged, load, outputs, random_prompts, rows_of

PROMPTS = random_prompts(5)


@pytest.fixture(scope="module")
def target(tiny_llama):
    return load(tiny_llama, "fast")


def test_generate_takes_text_ids_and_chat_messages(target):
    engine = Engine(target)
    chat = [{"role": "user", "content": "hi"}]
    ids = target.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)[
        "input_ids"
    ]
    text, same, messages, rendered = engine.generate(
        ["abc", [97, 98, 99], chat, ids], SamplingParams(max_new_tokens=6)
    )
    assert text.token_ids == same.token_ids
    assert messages.token_ids == rendered.token_ids
    assert text.text == target.tokenizer.decode(text.token_ids, skip_special_tokens=True)


def test_generate_can_be_called_again_with_the_same_result(target):
    engine = Engine(target, NgramDrafter(min_n=1, max_n=2), Fixed(depth=3))
    params = SamplingParams(max_new_tokens=8, temperature=1.0)
    first = [c.token_ids for c in engine.generate(PROMPTS, params)]
    assert [c.token_ids for c in engine.generate(PROMPTS, params)] == first


def test_stream_yields_every_token_once_and_ends_with_the_completion(target):
    engine = Engine(target, DraftModelDrafter(target), Jagged(), max_batch_size=2)
    seen: dict[str, list[int]] = {str(i): [] for i in range(5)}
    ended = {}
    for chunk in engine.stream(PROMPTS, SamplingParams(max_new_tokens=9)):
        assert chunk.request_id not in ended
        seen[chunk.request_id] += chunk.token_ids
        if chunk.completion is not None:
            ended[chunk.request_id] = chunk.completion
    assert {key: tuple(tokens) for key, tokens in seen.items()} == {k: c.token_ids for k, c in ended.items()}
    assert all(len(c.token_ids) == 9 and c.finish_reason is FinishReason.LENGTH for c in ended.values())


def test_leaving_a_stream_early_frees_its_rows(target):
    engine = Engine(target, max_batch_size=2)
    for _ in engine.stream(PROMPTS, SamplingParams(max_new_tokens=9)):
        break
    assert not engine.has_work
    assert len(engine.generate(PROMPTS, SamplingParams(max_new_tokens=3))) == 5


def test_cancel_keeps_what_was_emitted_and_others_go_on(target):
    engine = Engine(target, NgramDrafter(min_n=1, max_n=2), Fixed(depth=2), max_batch_size=2)
    alone = {c.request_id: c for c in engine.generate(PROMPTS, SamplingParams(max_new_tokens=12))}
    for request in engine.requests.make(PROMPTS, SamplingParams(max_new_tokens=12)):
        engine.add(request)
    for _ in range(4):
        engine.step()
    engine.cancel("0")  # running
    engine.cancel("4")  # waiting
    chunks = [chunk for chunk in engine.step().chunks if chunk.request_id in ("0", "4")]
    assert [c.completion.finish_reason for c in chunks] == [FinishReason.CANCELLED] * 2
    while engine.has_work:
        engine.step()
    cut = engine.completions["0"].token_ids
    assert 0 < len(cut) < 12
    assert cut == alone["0"].token_ids[: len(cut)]
    assert engine.completions["4"].token_ids == ()
    for i in ("1", "2", "3"):
        assert engine.completions[i].token_ids == alone[i].token_ids
    with pytest.raises(ValueError, match="only a waiting or running request can be cancelled, got '0'"):
        engine.cancel("0")


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_cancelling_the_only_request_hands_out_its_last_chunk(target, steps):
    """Waiting, in prefill, and decoding: nobody is left to run a pass."""
    engine = Engine(target, prefill_chunk=2)
    prompt = PROMPTS[0][:4]
    (request,) = engine.requests.make([prompt], SamplingParams(max_new_tokens=9))
    engine.add(request)
    for _ in range(steps):
        engine.step()
    engine.cancel("0")
    assert engine.has_work
    record = engine.step()
    assert [c.completion.finish_reason for c in record.chunks] == [FinishReason.CANCELLED]
    assert (record.rows, record.num_pass_tokens) == ((), 0)
    assert not engine.has_work
    assert engine.step().chunks == ()


def test_a_stream_survives_the_cancellation_of_its_request(target):
    engine = Engine(target)
    for chunk in engine.stream([[1, 2, 3]], SamplingParams(max_new_tokens=9)):
        if chunk.completion is None:
            engine.cancel(chunk.request_id)
            last = chunk
    assert last.request_id == "0"


def test_two_engines_can_share_a_drafter_one_after_the_other(target):
    drafter = DraftModelDrafter(target)
    params = SamplingParams(max_new_tokens=8)
    small = Engine(target, drafter, Fixed(depth=2), max_batch_size=1)
    large = Engine(target, drafter, Fixed(depth=2), max_batch_size=4)
    first = [c.token_ids for c in small.generate(PROMPTS, params)]
    assert [c.token_ids for c in large.generate(PROMPTS, params)] == first
    assert [c.token_ids for c in small.generate([PROMPTS[0] * 2, *PROMPTS], params)][1:] == first


def test_a_run_sees_the_policy_as_new(target):
    """What hysteresis learned from a larger batch does not reach the next call."""
    table = BatchTable(ranges=[[1, 2, 4], [3, 64, 1]], hysteresis=2)
    engine = Engine(target, NgramDrafter(min_n=1, max_n=2), table, max_batch_size=3)
    params = SamplingParams(max_new_tokens=8)
    alone = [row.planned for row in rows_of(outputs(engine, PROMPTS[:1], params)[1])]
    engine.completions.clear()
    outputs(engine, PROMPTS[:3], params)
    engine.completions.clear()
    assert [row.planned for row in rows_of(outputs(engine, PROMPTS[:1], params)[1])] == alone
    assert set(alone) == {4}


def test_a_run_has_room_for_its_longest_request_from_the_start(target):
    """Otherwise a long late request would keep the others waiting until the batch has drained."""
    short = [
        Request(request_id=str(i), prompt_ids=(1 + i,), params=SamplingParams(max_new_tokens=30))
        for i in range(4)
    ]
    long = Request(
        request_id="long", prompt_ids=(9,), params=SamplingParams(max_new_tokens=60), arrival_s=1e-3
    )
    engine = Engine(target, max_batch_size=5)
    records = list(engine.run([*short, long]))
    assert max(len(record.rows) for record in records) == 5


def test_a_clock_that_is_not_the_wall_is_asked_to_wait(target):
    class Frozen(Clock):
        time_s = 0.0

        def now_s(self):
            return self.time_s

        def wait_until_s(self, time_s):
            self.time_s = max(self.time_s, time_s)

    request = Request(
        request_id="a", prompt_ids=(1,), params=SamplingParams(max_new_tokens=2), arrival_s=50.0
    )
    engine = Engine(target, clock=Frozen())
    list(engine.run([request]))
    assert engine.completions["a"].ttft_s == 0.0


def test_everything_is_checked_before_the_first_step(target):
    engine = Engine(target, verification=Greedy())
    good = Request(request_id="a", prompt_ids=(1,), params=SamplingParams(max_new_tokens=9))
    hot = Request(request_id="b", prompt_ids=(1,), params=SamplingParams(temperature=1.0), arrival_s=9.0)
    with pytest.raises(ValueError, match="temperature"):
        next(engine.run([good, hot]))
    with pytest.raises(ValueError, match="unique, got 'a' twice in one run"):
        next(engine.run([good, good]))
    assert not engine.has_work


def test_stop_strings_are_found_across_special_tokens(target):
    """Special tokens have no text, so any number of them can lie inside a stop string."""
    special = target.tokenizer.convert_tokens_to_ids("<|im_start|>")
    params = SamplingParams(max_new_tokens=20, stop=("ab",), ignore_eos=True)
    (request,) = Engine(target).requests.make([[1]], params)
    row = Engine(target).requests.sequence(request, 0.0)
    assert row.commit([97, *[special] * 9, 98, 99], 0.0) == 11
    assert row.completion().text == ""


def test_arrivals_are_waited_for_and_latency_counts_from_them(target):
    requests = [
        Request(
            request_id=str(i),
            prompt_ids=tuple(prompt),
            params=SamplingParams(max_new_tokens=3),
            arrival_s=0.15 * i,
        )
        for i, prompt in enumerate(PROMPTS[:3])
    ]
    engine = Engine(target, max_batch_size=3)
    list(engine.run(reversed(requests)))
    done = [engine.completions[str(i)] for i in range(3)]
    assert all(0 < c.ttft_s <= c.latency_s < 0.15 for c in done), "rows that need not wait are served at once"


def test_a_longer_request_waits_for_an_idle_cache_and_is_served(target):
    engine = Engine(target, DraftModelDrafter(target), Fixed(depth=2), max_batch_size=2)
    short = SamplingParams(max_new_tokens=4)
    for i, prompt in enumerate(PROMPTS[:2]):
        engine.add(Request(request_id=f"short{i}", prompt_ids=tuple(prompt), params=short))
    engine.step()
    long = Request(request_id="long", prompt_ids=(1, 2, 3), params=SamplingParams(max_new_tokens=150))
    engine.add(long)
    while engine.has_work:
        engine.step()
    assert len(engine.completions["long"].token_ids) == 150


def test_rows_beyond_the_batch_wait_and_records_say_who_ran(target):
    _, records = outputs(Engine(target, max_batch_size=2), PROMPTS, SamplingParams(max_new_tokens=5))
    assert max(len(record.rows) for record in records) == 2
    assert sum(record.num_prefill_tokens for record in records) == sum(map(len, PROMPTS))
    for record in records:
        decode_tokens = sum(1 + row.verified for row in record.rows)
        assert record.num_pass_tokens == decode_tokens + record.num_prefill_tokens
        assert abs(sum(record.time_split_s.values()) - record.wall_s) < 1e-6
    rows = rows_of(records)
    # each row: the first token comes with the prefill, the other four from decode steps
    assert len(rows) == 5 * 4
    assert sum(row.emitted for row in rows) == 5 * 4


def test_per_request_depth_cap_and_remaining_tokens_bound_the_draft(target):
    params = [SamplingParams(max_new_tokens=10, max_depth=d) for d in (0, 1, None, None, None)]
    engine = Engine(target, DraftModelDrafter(target), Fixed(depth=4), max_batch_size=5)
    rows = rows_of(outputs(engine, PROMPTS, params)[1])
    drafted = {i: [row.drafted for row in rows if row.request_id == str(i)] for i in range(5)}
    assert set(drafted[0]) == {0}
    assert set(drafted[1]) <= {0, 1}
    assert 1 in drafted[1]
    assert max(drafted[2]) == 4
    assert all(row.planned == 4 for row in rows), "what the policy asked for stays on record"
    # 1 token from prefill, 5 + 4 more: the last step may draft only 3
    assert drafted[2] == [4, 3]


def test_synthetic_acceptance_follows_its_rates(target):
    rates = (1.0, 1.0, 0.0)
    engine = Engine(
        target,
        SyntheticDrafter(vocab_size=target.vocab_size, acceptance=(0.5,)),
        Fixed(depth=3),
        verification=SyntheticAcceptance(rates),
        max_batch_size=4,
    )
    rows = rows_of(outputs(engine, PROMPTS, SamplingParams(max_new_tokens=31, ignore_eos=True))[1])
    assert all(row.accepted == 2 for row in rows if row.drafted == 3)


class TestRefusals:
    def test_vocabulary_mismatch(self, target):
        with pytest.raises(ValueError, match="must share a vocabulary, got 100 and 259 entries"):
            Engine(target, SyntheticDrafter(vocab_size=100, acceptance=(0.5,)), Fixed(depth=1))

    def test_stop_strings_that_cannot_match(self, target):
        params = SamplingParams(stop=("<|im_end|>",))
        with pytest.raises(
            ValueError, match=r"has no special tokens, got '<|im_end|>'; use eos_token_ids=\[258"
        ):
            Engine(target).generate([[1]], params)
        with pytest.raises(ValueError, match="stop must be a list of strings, got the string 'END'"):
            SamplingParams(stop="END")

    def test_a_rule_whose_signal_the_drafter_lacks(self, target):
        with pytest.raises(ValueError, match="verification synthetic needs the signal confidence"):
            Engine(target, DraftModelDrafter(target), Fixed(depth=2), verification=SyntheticAcceptance())

    def test_depth_without_a_drafter(self, target):
        with pytest.raises(ValueError, match="drafts up to 2 tokens"):
            Engine(target, None, Fixed(depth=2))

    def test_missing_signal_names_both(self, target):
        policy = Confidence(depth=3, threshold=0.5, signal=Signal.CONFIDENCE, survival=False)
        with pytest.raises(
            ValueError, match="needs the signal confidence, which the drafter draft_model does not"
        ):
            Engine(target, DraftModelDrafter(target), policy)

    def test_prompts(self, target):
        engine = Engine(target)
        with pytest.raises(ValueError, match="at least one token, got none in request '0'"):
            engine.generate([[]])
        with pytest.raises(ValueError, match="prompt '0' of 512 tokens leaves no room .* context of 512"):
            engine.generate([[1] * 512])
        with pytest.raises(ValueError, match=r"token ids must be in \[0, 259\), got 259"):
            engine.generate([[259]])
        with pytest.raises(
            ValueError, match="one SamplingParams for all prompts or one a prompt, got 2 for 1"
        ):
            engine.generate([[1]], [SamplingParams()] * 2)

    def test_request_ids_are_unique(self, target):
        engine = Engine(target)
        request = Request(request_id="a", prompt_ids=(1,), params=SamplingParams())
        engine.add(request)
        with pytest.raises(ValueError, match="unique, got 'a' twice"):
            engine.add(request)

    def test_greedy_rule_refuses_temperature(self, target):
        with pytest.raises(ValueError, match="temperature"):
            Engine(target, verification=Greedy()).generate([[1]], SamplingParams(temperature=1.0))

    def test_a_policy_that_answers_out_of_range_is_named(self, target):
        class Deep(Jagged):
            def plan(self, ctx, state):
                return torch.full_like(ctx.slots, 9)

        engine = Engine(target, NgramDrafter(min_n=1, max_n=2), Deep(), verification=Coupled())
        with pytest.raises(ValueError, match=r"Deep.plan must stay in \[0, 4\] for row 0, got 9"):
            engine.generate([[1, 2, 3]])

    def test_sizes(self, target):
        with pytest.raises(ValueError, match="max_batch_size and prefill_chunk must be >= 1, got 0 and 512"):
            Engine(target, max_batch_size=0)
        with pytest.raises(ValueError, match=r"max_tokens_per_row must be in \[2, 512\]"):
            Engine(target, max_tokens_per_row=513)
