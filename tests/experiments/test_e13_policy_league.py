"""e13: everybody takes part or is left out for a reason, and standings and statuses follow from numbers."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import hydra
import numpy as np
import pytest

from dspark.analysis.replay.run import check_replay
from dspark.analysis.replay.trace import AcceptanceTrace
from dspark.config.build import build_policy
from dspark.config.compose import compose_policy, parse_entry
from dspark.config.paths import config_dir
from dspark.config.schema import component
from dspark.cost.constant import ConstantCost
from dspark.types import Signal
from experiments.e13_policy_league.entries import ENTRIES, LEFT_OUT, QUICK, option_of
from experiments.e13_policy_league.experiment import (
    EXPERIMENT,
    MACHINES,
    NO_ROOM,
    live_claim,
    modelled_claims,
)
from experiments.e13_policy_league.league import (
    Placing,
    over_domains,
    placings_of,
    standings,
    write_csv,
)
from experiments.e13_policy_league.live import Spot, fixed_rivals, spots_of
from experiments.reproduce import REPO, Claim, Status
from experiments.shipped.models import BLOCK

HERE = MACHINES[0]
COST = ConstantCost(draft_s_per_token=0.0, target_s=1.0)


@pytest.fixture(scope="module")
def trace() -> AcceptanceTrace:
    """Of a block drafter with a confidence head: every signal that it gives."""
    signals = {signal: np.full((3, BLOCK), 0.5) for signal in Signal if signal is not Signal.DIVERGENCE}
    return AcceptanceTrace(
        depth=BLOCK,
        request_ids=("one",),
        prompt_tokens=np.array([1]),
        output_tokens=np.array([4]),
        max_tokens=np.array([9]),
        drafted=np.full(3, BLOCK),
        accepted=np.zeros(3, dtype=np.int64),
        signals=signals,
    )


def test_every_policy_of_the_package_is_in_or_left_out_for_a_reason() -> None:
    options = {path.stem for path in (REPO / "configs" / "policy").glob("*.yaml")}
    assert ENTRIES.keys() | LEFT_OUT.keys() == options
    assert not ENTRIES.keys() & LEFT_OUT.keys()
    assert set(QUICK) <= ENTRIES.keys()


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_can_be_replayed_and_its_label_is_an_entry(name: str, trace: AcceptanceTrace) -> None:
    with hydra.initialize_config_dir(str(config_dir()), version_base="1.3"):
        label, node = compose_policy(parse_entry(ENTRIES[name]))
        if label != ENTRIES[name]:
            assert compose_policy(parse_entry(label)) == (label, node), "live runs are asked for by it"
    assert option_of(label) == name
    check_replay(trace, build_policy(component(node, name)), COST)


def test_what_is_left_out_cannot_be_replayed(trace: AcceptanceTrace) -> None:
    with hydra.initialize_config_dir(str(config_dir()), version_base="1.3"):
        _, node = compose_policy(parse_entry(f"dsde depth={BLOCK}"))
    with pytest.raises(ValueError, match="needs the signal divergence"):
        check_replay(trace, build_policy(component(node, "dsde")), COST)


def _placing(policy: str, domain: str, size: int, ratio: float, headroom: float | None) -> Placing:
    known = headroom is not None
    return Placing(
        machine=HERE,
        domain=domain,
        batch_size=size,
        policy=policy,
        label=f"{policy} depth=7",
        best_fixed=f"fixed {size}",
        ratio=ratio,
        ratio_low=ratio - 0.01,
        ratio_high=ratio + 0.01,
        room=0.1,
        headroom=headroom,
        headroom_low=headroom - 0.1 if known else None,
        headroom_high=headroom + 0.1 if known else None,
    )


PLACINGS = [
    _placing("tetris", "math", 1, 1.1, 0.6),
    _placing("tetris", "code", 1, 1.2, 0.8),
    _placing("tetris", "math", 4, 0.99, None),
    _placing("svip", "math", 1, 1.0, 0.9),
    _placing("svip", "code", 1, 1.0, 0.9),
    _placing("svip", "math", 4, 1.0, None),
]


def test_standings_are_means_and_ends() -> None:
    first, second = standings(PLACINGS, HERE)
    assert (first.policy, second.policy) == ("tetris", "svip")
    assert first.mean_ratio == pytest.approx((1.1 * 1.2 * 0.99) ** (1 / 3))
    assert (first.worst.ratio, first.best.ratio) == (0.99, 1.2)
    assert first.mean_headroom == pytest.approx(0.7)
    assert standings(PLACINGS, "elsewhere") == []
    assert over_domains(PLACINGS, HERE)["tetris", 1] == pytest.approx(math.sqrt(1.1 * 1.2))


def _table(**changes: float | None) -> dict:
    return {machine: standings([replace(each, **changes) for each in PLACINGS], HERE) for machine in MACHINES}


def _statuses(claims: list[Claim]) -> list[Status]:
    return [claim.status for claim in claims]


def test_modelled_statuses_follow_from_the_standings() -> None:
    good = modelled_claims(_table())
    assert [claim.what for claim in good] == [claim.what for claim in EXPERIMENT.claims[:-1]]
    assert _statuses(good) == [Status.SHAPE_ONLY] * 6
    assert [claim.ours for claim in good[::2]] == [0.99, 1.2, pytest.approx(0.9)]
    assert good[4].note == "svip", "who captures most need not be who is fastest"
    bad = modelled_claims(_table(ratio=0.97, headroom=0.4))
    assert _statuses(bad) == [Status.NOT_REPRODUCED] * 6
    none = modelled_claims(_table(headroom=None))
    assert [claim.note for claim in none[4:]] == [NO_ROOM] * 2
    assert _statuses(none[4:]) == [Status.NOT_RUN] * 2


def test_live_spots_are_held_against_the_best_fixed_depth_that_ran() -> None:
    assert fixed_rivals(PLACINGS, (1, 4, 16)) == ["fixed 0", "fixed 1", "fixed 4"]
    speeds = {
        ("fixed 0", 1): 30.0,
        ("fixed 1", 1): 40.0,
        ("tetris", 1): 44.0,
        ("fixed 0", 4): 90.0,
        ("fixed 1", 4): 80.0,
        ("tetris", 4): 81.0,
        ("fixed 0", 16): 5.0,  # the champion's cell was too short
    }
    found = spots_of(speeds, "tetris")
    assert found == {
        1: Spot(policy="tetris", tokens_per_s=44.0, best_fixed="fixed 1", ratio=1.1),
        4: Spot(policy="tetris", tokens_per_s=81.0, best_fixed="fixed 0", ratio=0.9),
    }
    claim = live_claim(found)
    assert (claim.ours, claim.status) == (0.9, Status.NOT_REPRODUCED)
    assert live_claim({1: found[1]}).status is Status.SHAPE_ONLY
    assert live_claim({}).status is Status.NOT_RUN


def test_placings_are_the_rows_of_a_replay() -> None:
    own = {
        "modelled_ratio_to_best_fixed": 1.1,
        "modelled_ratio_to_best_fixed_interval": [1.0, 1.2],
        "modelled_headroom": None,
        "modelled_headroom_interval": None,
    }
    names = ("fixed 0", "fixed 3", "dcut 7", "oracle")
    found = {
        "batches": [{"batch_size": 2, "best_fixed": "fixed 3", "modelled_room": 0.2}],
        "rows": [{"policy": name, "batch_size": 2, **own} for name in names],
    }
    (placing,) = placings_of(found, HERE, "math")
    assert (placing.policy, placing.label, placing.best_fixed) == ("dcut", "dcut 7", "fixed 3")
    assert (placing.ratio, placing.ratio_low, placing.ratio_high) == (1.1, 1.0, 1.2)
    assert (placing.room, placing.headroom, placing.headroom_low) == (0.2, None, None)


def test_the_csv_has_every_row(tmp_path: Path) -> None:
    write_csv(PLACINGS, tmp_path / "league.csv")
    with (tmp_path / "league.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["policy"], row["domain"], float(row["ratio"])) for row in rows] == [
        (each.policy, each.domain, each.ratio) for each in PLACINGS
    ]
    assert rows[2]["headroom"] == ""


def test_a_shortened_run_leaves_a_league_and_its_pictures(shortened) -> None:
    result, folder = shortened("e13_policy_league")
    with (folder / "league.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(MACHINES) * len(QUICK) * 2, "one domain, two batch sizes"
    assert {row["policy"] for row in rows} == set(QUICK)
    for machine, claim in zip(MACHINES, result.claims, strict=False):
        own = [row for row in rows if row["machine"] == machine]
        champion = claim.note.split(":")[0]
        worst = min(float(row["ratio"]) for row in own if row["label"] == champion)
        assert claim.ours == worst
    assert all((folder / figure.file).stat().st_size > 0 for figure in result.figures)
