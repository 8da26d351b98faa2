"""e14: what is read off runs, exact laws, and statuses from numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.e14_coupled.cells import TEMPERATURES
from experiments.e14_coupled.experiment import EXPERIMENT, NO_NOISE, claims
from experiments.e14_coupled.law import largest_bias, least_acceptance
from experiments.e14_coupled.runs import Sampled, num_differing, per_request
from experiments.reproduce import Claim, Status


def _write(path: Path, items: list[dict]) -> None:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))


def test_texts_are_held_together_request_by_request(tmp_path: Path) -> None:
    texts = {4: {"a": [1, 2], "b": [3]}, 7: {"b": [3], "a": [1, 5]}}
    lines = [
        {"cell": f"fixed {depth}/batch 2/repeat 0", "request_id": name, "token_ids": ids}
        for depth, own in texts.items()
        for name, ids in own.items()
    ]
    _write(tmp_path / "outputs.jsonl", lines)
    assert num_differing(tmp_path, 2) == 1


def test_tokens_a_round_are_of_requests_with_rounds_at_both_depths(tmp_path: Path) -> None:
    rounds = {4: [("b", 2), ("a", 1), ("a", 3)], 7: [("a", 5), ("b", 4), ("b", 1), ("c", 1)]}
    lines = [
        {
            "cell": f"fixed {depth}/batch 2/repeat 0",
            "attempt": 0,
            "step": step,
            "rows": {"request_id": [name], "emitted": [tokens]},
        }
        for depth, own in rounds.items()
        for step, (name, tokens) in enumerate(own)
    ]
    _write(tmp_path / "steps.jsonl", lines)
    found = per_request(tmp_path, 2)
    assert {depth: values.tolist() for depth, values in found.items()} == {4: [2.0, 2.0], 7: [5.0, 2.5]}


def _sampled(differences: tuple[float, ...], *, length: float, first: float, num_differing: int) -> Sampled:
    shallow = np.array([1.0, 2.0, 4.0, 3.0])
    return Sampled(
        lengths={4: length, 7: length},
        first=first,
        decode_tokens_per_s={4: None, 7: 50.0},
        num_requests=4,
        num_differing=num_differing,
        per_request={4: shallow, 7: shallow + np.array(differences)},
    )


def test_pairing_takes_away_what_both_depths_share() -> None:
    one = _sampled((0.1, 0.3, 0.1, 0.3), length=2.0, first=0.5, num_differing=0)
    assert one.standard_error == pytest.approx(np.sqrt(4 * 0.1**2 / 3 / 4))
    apart = np.sqrt(sum(values.var(ddof=1) / 4 for values in one.per_request.values()))
    assert one.unpaired_standard_error == pytest.approx(apart)
    assert one.standard_error < 0.1 * one.unpaired_standard_error


@pytest.mark.parametrize("rule", ["rejection", "coupled"])
def test_both_rules_are_exact_in_law(rule: str) -> None:
    bias, num_worlds = largest_bias(rule, 1)
    assert bias == 0
    assert num_worlds >= 3


def test_the_least_acceptance_is_that_of_the_paper() -> None:
    assert (least_acceptance(1.0), least_acceptance(0.0)) == (1.0, 0.0)
    assert least_acceptance(0.5) == pytest.approx(1 / 3)
    distances = np.linspace(0, 1, 11)
    mean_of_bounds = np.mean([least_acceptance(1 - t) for t in distances])
    assert mean_of_bounds >= least_acceptance(1 - distances.mean()), "convex, so means obey it"


def _found(**by_rule: Sampled) -> dict[tuple[str, float], Sampled]:
    return {(rule, temperature): runs for rule, runs in by_rule.items() for temperature in TEMPERATURES}


def _statuses(found: list[Claim]) -> dict[str, set[Status]]:
    kinds = ("acceptance length", "share of first", "requests with another text", "standard error")
    return {kind: {claim.status for claim in found if claim.what.startswith(kind)} for kind in kinds}


def test_statuses_follow_from_the_runs() -> None:
    quiet = _sampled((0.1, 0.2, 0.1, 0.2), length=2.0, first=0.6, num_differing=0)
    noisy = _sampled((1.0, -1.0, 2.0, -2.0), length=2.2, first=0.7, num_differing=4)
    good = claims(_found(coupled=quiet, rejection=noisy))
    assert [claim.what for claim in good] == [claim.what for claim in EXPERIMENT.claims[2:]]
    assert set().union(*_statuses(good).values()) == {Status.SHAPE_ONLY}
    assert good[0].ours == pytest.approx(2.0 / 2.2)
    assert good[4].ours == pytest.approx(0.6 / (0.7 / 1.3))
    assert good[-1].ours == pytest.approx(quiet.standard_error / noisy.standard_error)
    low = replace(noisy, first=0.5)
    bad = claims(_found(coupled=low, rejection=quiet))
    statuses = _statuses(bad)
    assert statuses.pop("share of first") == {Status.SHAPE_ONLY}, "0.5 is above 0.6/1.4"
    assert set().union(*statuses.values()) == {Status.NOT_REPRODUCED}


def test_where_there_is_nothing_to_divide_by_a_claim_is_left_out() -> None:
    still = _sampled((0.0,) * 4, length=2.0, first=0.0, num_differing=0)
    told = claims(_found(coupled=still, rejection=still))
    assert {claim.note for claim in told if claim.what.startswith("standard error")} == {NO_NOISE}
    assert {claim.status for claim in told if claim.what.startswith("share of first")} == {Status.NOT_RUN}


def test_a_shortened_run_has_the_same_texts_at_both_depths_under_coupled(shortened) -> None:
    result, folder = shortened("e14_coupled")
    by_what = {claim.what: claim for claim in result.claims}
    for temperature in TEMPERATURES:
        same = by_what[f"requests with another text at another depth, coupled, T = {temperature:g}"]
        assert (same.ours, same.status) == (0, Status.SHAPE_ONLY)
    assert [claim.status for claim in result.claims[:2]] == [Status.REPRODUCED] * 2, "exact laws"
    for rule in ("coupled", "rejection"):
        row = json.loads((folder / f"{rule}-0.7" / "summary.json").read_text())["rows"][0]
        assert (row["verification"], row["temperature"]) == (rule, 0.7)
