"""Tokens a round by depth against a plain walk, a drafter without its head, and the timing of modules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.drafters.formats import describe
from dspark.drafters.formats.files import read_tensors
from experiments.drafting.stand_in import make_stand_in
from experiments.e05_proposal_length.experiment import (
    DEPTH,
    OVER_DFLASH,
    OVER_HEADLESS,
    SAME_TEXT,
    SHARE,
    _claims,
    gain_by_depth,
    lengths_by_depth,
)
from experiments.e05_proposal_length.headless import LAST, without_head
from experiments.e05_proposal_length.timing import Round, Stopwatch
from experiments.reproduce import Status
from tests.experiments.conftest import Shortened

ROUNDS = {128: Round(wall_s=2.0, target_s=1.5, draft_s=0.4, head_s=0.01)}


def test_tokens_a_round_are_those_of_a_walk() -> None:
    generator, counts = np.random.default_rng(0), np.array([40, 25, 31])
    accepted = generator.integers(0, DEPTH + 1, size=int((counts - 1).sum()))
    trace = AcceptanceTrace(
        depth=DEPTH,
        request_ids=("a", "b", "c"),
        prompt_tokens=np.array([3, 4, 5]),
        output_tokens=counts,
        max_tokens=counts + 100,
        drafted=np.full(len(accepted), DEPTH),
        accepted=accepted,
    )
    starts = np.concatenate([[0], np.cumsum(counts - 1)])
    for depth, found in enumerate(lengths_by_depth(trace), start=1):
        emitted = rounds = 0
        for request, count in enumerate(counts):
            place = 1
            while place < count:
                new = min(accepted[starts[request] + place - 1], depth) + 1
                new = min(new, count - place)
                emitted, rounds, place = emitted + new, rounds + 1, place + new
        assert found == pytest.approx(emitted / rounds)


def test_a_gain_is_in_per_cent_of_the_other() -> None:
    lengths = {("DSpark", "math"): [1.5, 2.4], ("DFlash", "math"): [1.5, 2.0]}
    assert gain_by_depth(lengths, "DFlash", "math") == pytest.approx([0, 20])


def test_statuses_follow_from_gains_and_rounds() -> None:
    like_the_paper = {"math": [5.0, 16.0], "code": [5.0, 15.0], "chat": [5.0, 18.0]}
    less = {domain: [1.0, 4.0] for domain in like_the_paper}
    gains = {"DFlash": like_the_paper, "without its sequential head": less}
    claims = {claim.what: claim for claim in _claims(gains, ROUNDS, 0)}
    assert all(claims[claim.what].status is Status.REPRODUCED for claim in OVER_DFLASH.values())
    assert all(claims[claim.what].status is Status.SHAPE_ONLY for claim in OVER_HEADLESS.values())
    assert claims[SHARE.what].ours == pytest.approx(0.5)
    assert claims[SHARE.what].status is Status.SHAPE_ONLY
    growths = [claim.ours for what, claim in claims.items() if "less" in what]
    assert growths == pytest.approx([(11 + 10 + 13) / 3, 3])
    without = {claim.what: claim for claim in _claims({"without its sequential head": less}, ROUNDS, 1)}
    assert {without[claim.what].status for claim in OVER_DFLASH.values()} == {Status.NOT_RUN}
    assert without[SAME_TEXT.what].status is Status.NOT_REPRODUCED
    assert list(without) == list(claims)


def test_a_drafter_loses_one_matrix_and_nothing_else(shortened: Shortened) -> None:
    _, folder = shortened("e05_proposal_length")
    before, after = describe(folder / "stand_ins" / "dspark"), describe(folder / "headless")
    assert after.spec == before.spec
    were, are = (read_tensors(part.files, set(part.files)) for part in (before, after))
    assert are.keys() == were.keys()
    changed = [name for name in were if not torch.equal(were[name], are[name])]
    assert changed == [before.tensors[LAST]]
    assert not are[changed[0]].any()


def test_a_drafter_without_a_head_has_none_to_lose(tmp_path: Path) -> None:
    dflash = make_stand_in("dflash", tmp_path)
    with pytest.raises(ValueError, match="has none to lose, got kind dflash"):
        without_head(dflash, tmp_path / "out")


class _Clock:
    """Goes on by one at every look."""

    now = 0.0

    def now_s(self) -> float:
        self.now += 1
        return self.now


def test_a_stopwatch_adds_up_its_modules_and_leaves_them() -> None:
    first, second, other = nn.Identity(), nn.Identity(), nn.Identity()
    watch = Stopwatch([first, second], _Clock())  # type: ignore[arg-type]
    for module in (first, other, second, first):
        module(torch.zeros(1))
    assert watch.total_s == 3  # three calls, a look before and after each
    watch.remove()
    first(torch.zeros(1))
    assert watch.total_s == 3


def test_the_shortened_run_times_rounds_and_leaves_texts_alone(shortened: Shortened) -> None:
    result, folder = shortened("e05_proposal_length")
    claims = {claim.what: claim for claim in result.claims}
    assert claims[SAME_TEXT.what].ours == 0
    assert 0 < claims[SHARE.what].ours < 100
    # by heart with its head, and nothing at all without
    assert all(claims[claim.what].ours > 0 for claim in OVER_HEADLESS.values())
    lengths, rounds = result.tables
    assert len(lengths.rows) == 3 * 3
    assert [row[0] for row in rounds.rows] == ["1", "2"]
    assert (folder / "gain.png").stat().st_size > 1000
