"""How well a drafter would do on answers it was not trained on, without running it.

Greedy speculation emits the answer itself, so which drafts would be accepted can be read off: from the
last committed token, the guesses that match the answer, up to the first that does not. Walking from
there to the next anchor, over the whole answer, gives the very rounds that an engine would run, and
their acceptance length is the engine's own (``predicted_tau``; the tests compare the two).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dspark.training.anchors import all_anchors
from dspark.training.batches import make_batch
from dspark.training.curves import add, numbers
from dspark.training.losses import sum_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.training.answers import Answer
    from dspark.training.lessons import Teacher
    from dspark.training.trainee import Trainee


@torch.no_grad()
def evaluate(
    trainee: Trainee,
    teacher: Teacher,
    answers: Sequence[Answer],
    *,
    eos_token_ids: Sequence[int],
    device: torch.device,
) -> dict[str, float]:
    """The curve's numbers over every anchor of the answers, and ``predicted_tau`` of the greedy ones.

    Args:
        trainee: guesses.
        teacher: knows the answers.
        answers: held out; without a greedy one there is no ``predicted_tau``.
        eos_token_ids: tokens that end an answer; one that ends otherwise ended at its limit.
        device: of the trainee.
    """
    sums = []
    emitted = rounds = 0
    num_drafts = trainee.spec.block_size
    for answer in answers:
        (lesson,) = teacher.lessons([answer])
        anchors = all_anchors(lesson.num_prompt, len(lesson.features))
        batch = make_batch([lesson], [anchors], num_drafts).to(device)
        measured, confidence = trainee.measured(batch)
        sums.append(sum_up(measured, batch.exists, confidence, trainee.weights))
        if answer.temperature == 0:
            runs = measured.is_match.view(batch.exists.shape).int().cumprod(1).sum(1)
            ended_by_itself = answer.token_ids[-1] in eos_token_ids
            walked = walk(runs.tolist(), ended_by_itself=ended_by_itself)
            emitted, rounds = emitted + walked[0], rounds + walked[1]
    found = numbers(add(sums), trainee.weights)
    if rounds:
        found["predicted_tau"] = emitted / rounds
    return found


def walk(runs: Sequence[int], *, ended_by_itself: bool) -> tuple[int, int]:
    """Tokens that the rounds with a draft emit, and their number: their ratio is the acceptance length.

    Args:
        runs: for every anchor of an answer, in order, how many guesses match.
        ended_by_itself: False where the answer reached its limit: the engine knows that before, and
            drafts nothing for a last token.
    """
    emitted = rounds = place = 0
    while place < len(runs):
        left = len(runs) - place
        count = min(runs[place] + 1, left)
        if left > 1 or ended_by_itself:
            emitted, rounds = emitted + count, rounds + 1
        place += count
    return emitted, rounds
