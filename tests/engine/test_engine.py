"""How the engine is driven: streams, cancellation, arrivals, admission, records and refusals."""

import pytest
import torch

from dspark.drafters.draft_model import DraftModelDrafter
from dspark.drafters.ngram import NgramDrafter
from dspark.drafters.synthetic import SyntheticDrafter
from dspark.engine.engine import Engine
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
    for request in engine._requests.requests(PROMPTS, SamplingParams(max_new_tokens=12)):
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
        with pytest.raises(ValueError, match=r"Deep.plan must stay in \[0, 4\], got \[9\]"):
            engine.generate([[1, 2, 3]])

    def test_sizes(self, target):
        with pytest.raises(ValueError, match="max_batch_size and prefill_chunk must be >= 1, got 0 and 512"):
            Engine(target, max_batch_size=0)
        with pytest.raises(ValueError, match=r"max_tokens_per_row must be in \[2, 512\]"):
            Engine(target, max_tokens_per_row=513)
