"""e09: the best switch, labels, halves, and statuses from numbers."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import hydra
import numpy as np
import pytest

from dspark.analysis.replay.files import read_trace, write_trace
from dspark.analysis.replay.headroom import Estimate
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.config.build import build_policy
from dspark.config.compose import compose_policy, parse_entry
from dspark.config.paths import config_dir
from dspark.config.schema import component
from experiments.e09_batch_tables.experiment import EXPERIMENT, claims
from experiments.e09_batch_tables.losses import Losses, halves
from experiments.e09_batch_tables.tables import (
    CONTENDERS,
    DOCUMENTED,
    REPORTED,
    SWITCH,
    TUNED,
    Switch,
    best_switch,
    table,
)
from experiments.reproduce import Status
from experiments.shipped.machines import H100, HERE
from experiments.shipped.recordings import Recordings

SIZES = (1, 4, 16)


def test_the_best_switch_is_the_best_of_all() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        speeds = generator.uniform(1, 3, size=(len(SIZES), 4))

        def product_of(depth: int, threshold: int, speeds: np.ndarray = speeds) -> float:
            chosen = [depth if size < threshold else 0 for size in SIZES]
            return float(np.prod([each[k] for each, k in zip(speeds, chosen, strict=True)]))

        every = [product_of(depth, threshold) for depth, threshold in product((1, 2, 3), (4, 16, 17))]
        found = best_switch(SIZES, speeds.tolist())
        assert product_of(found.depth, found.threshold) == max(every)


@pytest.mark.parametrize(
    "contender",
    [
        table("documented", DOCUMENTED),
        table("reported", REPORTED),
        table("one range", [[1, 512, 5]]),
        Switch(depth=3, threshold=16).contender,
    ],
    ids=lambda contender: contender.name,
)
def test_commands_call_a_contender_by_its_label(contender) -> None:
    with hydra.initialize_config_dir(str(config_dir()), version_base="1.3"):
        label, node = compose_policy(parse_entry(contender.entry))
    assert label == contender.label
    assert build_policy(component(node, "policy")).max_depth <= 5


def test_halves_share_no_request_and_hold_all(tmp_path: Path) -> None:
    count = 7
    trace = AcceptanceTrace(
        depth=1,
        request_ids=tuple(map(str, range(count))),
        prompt_tokens=np.ones(count, dtype=np.int64),
        output_tokens=np.full(count, 2),
        max_tokens=np.full(count, 3),
        drafted=np.ones(count, dtype=np.int64),
        accepted=np.zeros(count, dtype=np.int64),
    )
    whole = write_trace(trace, tmp_path / "whole.parquet")
    recorded = Recordings(trace=whole, domains={}, profile=tmp_path)
    one, other = (read_trace(path).request_ids for path in halves(recorded, tmp_path))
    assert not set(one) & set(other)
    assert set(one) | set(other) == set(trace.request_ids)


def _losses(of_tuned: float, of_others: float) -> Losses:
    """At batch 4 all is at its worst; elsewhere everybody is even."""

    def at(value: float) -> dict[int, Estimate]:
        even = Estimate(value=1.0, low=0.99, high=1.01)
        return {1: even, 4: Estimate(value=value, low=value - 0.1, high=value + 0.1), 16: even}

    over_tuned = {name: at(of_others if name != TUNED else 1.0) for name in CONTENDERS}
    over_best = {name: at(of_tuned) for name in CONTENDERS}
    return Losses(
        batch_sizes=SIZES,
        tuned=[[1, 512, 2]],
        switch="switch: 3 below 4",
        best_fixed=dict.fromkeys(SIZES, "fixed 2"),
        over_tuned={(name, size): each[size] for name, each in over_tuned.items() for size in SIZES},
        over_best={(name, size): each[size] for name, each in over_best.items() for size in SIZES},
    )


def test_statuses_follow_from_the_worst_batch_size() -> None:
    good = _losses(0.99, 0.8)
    assert good.worst(SWITCH) == (4, good.over_tuned[SWITCH, 4])
    told = claims({HERE: good, H100: _losses(0.9, 1.2)})
    assert [claim.what for claim in told] == [claim.what for claim in EXPERIMENT.claims]
    for claim in told:
        here = claim.what.endswith(HERE)
        # where a contender gains somewhere, its worst batch size is one of the even ones
        worst = {True: {"tuned": 0.99, "other": 0.8}, False: {"tuned": 0.9, "other": 1.0}}[here]
        assert claim.ours == worst["tuned" if claim.what.startswith(TUNED) else "other"]
        assert claim.status is (Status.SHAPE_ONLY if here else Status.NOT_REPRODUCED)
        assert claim.note.startswith("at batch ")
