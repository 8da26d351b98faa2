"""The losses against a plain re-derivation in Python's own numbers, and what carries gradients."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from dspark.training import fused_loss, losses
from dspark.training.curves import add, numbers
from dspark.training.fused_loss import learn
from dspark.training.losses import TERMS, Guesses, Measured, measure, sum_up
from dspark.training.settings import LossWeights
from tests.training.lessons_tools import WEIGHTS

V, W, D, ROWS = 9, 5, 4, 6
TARGET_IDS = [1, 2, 5, 6, 8]  # of the drafter's tokens


def _random_guesses() -> tuple[Guesses, torch.Tensor]:
    """Guesses, and the target's whole logits [ROWS, V]."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float32)

    head, taught = normal(V, D), normal(ROWS, D)
    logits = taught @ head.T
    guesses = Guesses(
        hidden=normal(ROWS, D + 2).requires_grad_(),
        head=normal(W, D).requires_grad_(),
        markov=normal(W, 2).requires_grad_(),
        teacher_hidden=taught.clone().requires_grad_(),
        teacher=head[TARGET_IDS].clone().requires_grad_(),
        log_normaliser=logits.logsumexp(-1),
        labels=torch.tensor([0, 4, -1, 2, 2, 1]),
        confidence=normal(ROWS).requires_grad_(),
    )
    return guesses, logits


def _softmax(row: list[float]) -> list[float]:
    top = max(row)
    powers = [math.exp(value - top) for value in row]
    return [power / sum(powers) for power in powers]


def test_every_term_is_what_its_definition_says() -> None:
    guesses, logits = _random_guesses()
    measured = measure(guesses)
    for row in range(ROWS):
        p = _softmax(logits[row].tolist())
        drafted = [
            sum(a * b for a, b in zip(guesses.hidden[row].tolist(), weight, strict=True))
            for weight in torch.cat([guesses.head, guesses.markov], 1).tolist()
        ]
        small = _softmax(drafted)
        q = [0.0] * V
        for draft_id, target_id in enumerate(TARGET_IDS):
            q[target_id] = small[draft_id]
        label = int(guesses.labels[row])
        tv = sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2
        soft = -sum(p[target_id] * math.log(q[target_id]) for target_id in TARGET_IDS)
        said = 1 / (1 + math.exp(-guesses.confidence[row].item()))
        cross = -(1 - tv) * math.log(said) - tv * math.log(1 - said)
        assert measured.ce[row].item() == pytest.approx(
            0.0 if label < 0 else -math.log(small[label]), abs=1e-5
        )
        assert measured.tv[row].item() == pytest.approx(tv, abs=1e-5)
        assert measured.soft_ce[row].item() == pytest.approx(soft, abs=1e-5)
        assert measured.confidence[row].item() == pytest.approx(cross, abs=1e-5)
        assert bool(measured.is_match[row]) == (small.index(max(small)) == label)
    assert measured.tv.min().item() > 0.1, "a case without a difference shows nothing"


def test_pieces_give_the_same_numbers_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> tuple[Measured, list[torch.Tensor]]:
        guesses, _ = _random_guesses()
        measured = measure(guesses)
        sum((getattr(measured, name) * torch.arange(1, ROWS + 1)).sum() for name in TERMS).backward()
        return measured, [
            guesses.hidden.grad,
            guesses.head.grad,
            guesses.markov.grad,
            guesses.confidence.grad,
        ]

    whole, gradients = run()
    monkeypatch.setattr(losses, "CHUNK_VALUES", 4 * W)  # pieces of 4 and 2 rows
    pieces, again = run()
    for name in (*TERMS, "is_match"):
        torch.testing.assert_close(getattr(pieces, name), getattr(whole, name))
    for one, other in zip(gradients, again, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "weights", [WEIGHTS, replace(WEIGHTS, ce=0.3, soft_ce=0.7, tv=0.0), replace(WEIGHTS, soft_ce=0.2)]
)
@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("has_markov", [True, False])
def test_learning_in_pieces_has_the_gradients_of_autograd(
    monkeypatch: pytest.MonkeyPatch, weights: LossWeights, is_whole: bool, has_markov: bool
) -> None:
    if not is_whole:
        monkeypatch.setattr(fused_loss, "CPU_VALUES", 4 * W)  # pieces of 4 and 2 rows
        monkeypatch.setattr(fused_loss, "MIN_ROWS", 1)
    row_weights = torch.arange(1.0, ROWS + 1)
    ours, theirs = _random_guesses()[0], _random_guesses()[0]
    if not has_markov:
        ours, theirs = (_without_markov(guesses) for guesses in (ours, theirs))
    measured = measure(theirs)
    mixed = weights.ce * measured.ce + weights.soft_ce * measured.soft_ce + weights.tv * measured.tv
    expected = (mixed * row_weights).sum()
    ((expected + measured.confidence.sum()) / 7).backward()
    loss, learned = learn(ours, row_weights, weights)
    ((loss + learned.confidence.sum()) / 7).backward()
    torch.testing.assert_close(loss, expected)
    for name in (*TERMS, "is_match"):
        torch.testing.assert_close(getattr(learned, name), getattr(measured, name))
    for name in ("hidden", "head", "confidence", *(["markov"] if has_markov else [])):
        grad = getattr(ours, name).grad
        torch.testing.assert_close(grad, getattr(theirs, name).grad, atol=1e-6, rtol=1e-5)
        assert float(grad.abs().max()) > 1e-3, "gradients of 0 show nothing"
    assert ours.teacher.grad is None


def test_autocast_leaves_the_targets_law_alone() -> None:
    exact, cast = _random_guesses()[0], _random_guesses()[0]
    row_weights = torch.ones(ROWS)
    expected, _ = learn(exact, row_weights, WEIGHTS)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = learn(cast, row_weights, WEIGHTS)
    assert torch.equal(loss, expected), "float32 in, float32 throughout"
    expected.backward()
    loss.backward()
    assert torch.equal(cast.hidden.grad, exact.hidden.grad)
    # a drafter's states in bfloat16, as autocast makes them, have gradients in bfloat16, near the others
    rounded = replace(_random_guesses()[0], hidden=exact.hidden.detach().bfloat16().requires_grad_())
    with torch.autocast("cpu", torch.bfloat16):
        learn(rounded, row_weights, WEIGHTS)[0].backward()
    assert rounded.hidden.grad.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.hidden.grad.float(), exact.hidden.grad, atol=0.03, rtol=0.05)


def _without_markov(guesses: Guesses) -> Guesses:
    return replace(guesses, hidden=guesses.hidden[:, :D].detach().clone().requires_grad_(), markov=None)


def test_the_target_is_not_trained_and_confidence_does_not_train_the_drafter() -> None:
    guesses, _ = _random_guesses()
    measured = measure(guesses)
    measured.confidence.sum().backward(retain_graph=True)
    assert guesses.hidden.grad is None, "confidence is judged by tv, which it must not change"
    assert guesses.confidence.grad is not None
    (measured.ce + measured.tv + measured.soft_ce).sum().backward()
    assert guesses.hidden.grad is not None
    assert guesses.teacher.grad is None
    assert guesses.teacher_hidden.grad is None


def test_tv_goes_down_along_its_gradient() -> None:
    guesses, _ = _random_guesses()
    measure(guesses).tv.sum().backward()
    better = replace(guesses, hidden=(guesses.hidden - 0.01 * guesses.hidden.grad).detach())
    assert measure(better).tv.sum().item() < measure(guesses).tv.sum().item()


def _measured(tv: list[list[float]], match: list[list[bool]]) -> Measured:
    flat = torch.tensor(tv).flatten()
    return Measured(
        ce=flat * 2,
        soft_ce=flat * 3,
        tv=flat,
        confidence=flat * 0 + 0.5,
        is_match=torch.tensor(match).flatten(),
    )


def test_sums_over_a_block_by_hand() -> None:
    # two blocks of two guesses; the second guess of the second block is past the answer's end
    measured = _measured([[0.2, 0.5], [0.4, 0.9]], [[True, False], [True, True]])
    exists = torch.tensor([[True, True], [True, False]])
    confidence = torch.zeros(4)  # says 1/2
    weights = replace(WEIGHTS, decay=2.0)
    sums = sum_up(measured, exists, confidence, weights)
    second = math.exp(-1 / 2)
    assert float(sums.weight) == pytest.approx(2 + second)
    tv = 0.2 + 0.4 + second * 0.5
    expected = (2 * tv, 3 * tv, tv, 0.5 * (2 + second))
    assert sums.terms.tolist() == pytest.approx(list(expected))
    assert sums.count.tolist() == [2, 1]
    assert sums.overlap.tolist() == pytest.approx([0.8 + 0.6, 0.5])
    assert sums.survival.tolist() == pytest.approx([0.8 + 0.6, 0.8 * 0.5])
    assert (sums.match.tolist(), sums.run.tolist()) == ([2, 0], [2, 0])
    assert float(sums.error) == pytest.approx(0.3 + 0.0 + 0.1)
    loss = sums.loss / sums.weight
    by_hand = (0.1 * 2 * tv + 1.8 * tv + 1.0 * 0.5 * (2 + second)) / (2 + second)
    assert float(loss) == pytest.approx(by_hand)

    found = numbers(sums, WEIGHTS)
    assert found["loss"] == pytest.approx(by_hand)
    assert found["expected_tau"] == pytest.approx(1 + 1.4 / 2 + 0.4 / 1)
    assert (found["overlap@2"], found["accept@2"]) == (pytest.approx(0.5), pytest.approx(0.4))
    assert (found["match@1"], found["run@1"], found["run@2"]) == (1.0, 1.0, 0.0)
    assert found["confidence_error"] == pytest.approx(0.4 / 3)
    without = numbers(sums, replace(WEIGHTS, confidence=0.0))
    assert "confidence" not in without
    assert "confidence_error" not in without

    twice = add([sums, sums])
    assert numbers(twice, WEIGHTS) == pytest.approx(found)
    assert float(twice.weight) == pytest.approx(2 * float(sums.weight))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ce": -1.0}, "ce must be >= 0, got -1.0"),
        ({"ce": 0.0, "tv": 0.0}, "ce, soft_ce or tv must be > 0"),
        ({"decay": 0.0}, "decay must be > 0, got 0.0"),
    ],
)
def test_weights_out_of_range(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(WEIGHTS, **change)
