"""What experiments with the shipped drafter share: its settings, one trace, one profile, and commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from dspark.analysis.replay.files import read_trace
from dspark.cost.profile_file import profile_cost
from dspark.types import Signal
from experiments.reproduce import Context, commands
from experiments.shipped.commands import paired, policy_list, replay
from experiments.shipped.machines import costs
from experiments.shipped.models import BLOCK, DRAFTER, drafter_files, missing, models
from experiments.shipped.recordings import Recordings, recordings


def _context(out: Path, name: str, *, quick: bool = True, drafter: str | None = None) -> Context:
    folder = out / name
    folder.mkdir(exist_ok=True)
    settings = {DRAFTER.name: drafter or DRAFTER.default}
    return Context(folder=folder, console=Console(quiet=True), quick=quick, settings=settings)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recordings]:
    """A folder of results, and the recordings that a first experiment has made in it."""
    out = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSPARK_CACHE", str(out / "cache"))
        return out, recordings(_context(out, "e90_first"))


def test_the_trace_has_every_signal_and_its_domains_are_its_parts(made: tuple[Path, Recordings]) -> None:
    _, recorded = made
    whole = read_trace(recorded.trace)
    assert whole.depth == BLOCK
    assert set(whole.signals) == set(Signal) - {Signal.DIVERGENCE}
    parts = {domain: read_trace(path) for domain, path in recorded.domains.items()}
    names = {domain: set(part.request_ids) for domain, part in parts.items()}
    assert set().union(*names.values()) == set(whole.request_ids)
    assert sum(map(len, names.values())) == whole.num_requests
    for domain, own in names.items():
        assert own
        assert all(name.startswith(domain) for name in own)
    assert sum(part.accepted.sum() for part in parts.values()) == whole.accepted.sum()


def test_a_second_experiment_uses_what_is_there(
    made: tuple[Path, Recordings], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Path:
        raise AssertionError("run again")

    out, recorded = made
    monkeypatch.setattr(commands, "dspark", refuse)
    assert recordings(_context(out, "e91_second")) == recorded


def test_another_drafter_gets_recordings_of_its_own(
    made: tuple[Path, Recordings], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = made
    stand_in = out / "recordings" / "stand_ins" / "dspark"
    (stand_in / "another.json").write_text("{}")
    asked = []

    def note(arguments: list[str], folder: Path) -> Path:
        asked.append(arguments[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "dspark", note)
    with pytest.raises(KeyboardInterrupt):
        recordings(_context(out, "e91_second"))
    (stand_in / "another.json").unlink()
    assert asked == ["record"]


def test_what_was_replayed_is_not_replayed_again_and_pairs_requests(
    made: tuple[Path, Recordings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, recorded = made
    for machine, cost in costs(recorded).items():
        folder = tmp_path / machine
        found = replay(recorded.trace, ["prefix_scheduler", "confidence depth=5"], [2], cost, folder)
        speeds = paired(recorded.trace, folder, 2)
        rows = {row["policy"]: row for row in found["rows"]}
        (batch,) = found["batches"]
        for policy in ("prefix_scheduler", "confidence depth=5"):
            ratio = speeds.ratio(policy, batch["best_fixed"])
            assert ratio.value == rows[policy]["modelled_ratio_to_best_fixed"]
            assert [ratio.low, ratio.high] == rows[policy]["modelled_ratio_to_best_fixed_interval"]
        with monkeypatch.context() as patch:
            patch.setattr(commands, "dspark", None)
            assert replay(recorded.trace, ["prefix_scheduler"], [2], cost, folder) == found


def test_the_profile_is_a_cost_model(made: tuple[Path, Recordings]) -> None:
    assert profile_cost(made[1].profile) is not None


def test_without_the_drafter_the_reason_names_it_and_the_setting(tmp_path: Path, smollm2_path: Path) -> None:
    nowhere = missing(_context(tmp_path, "e90_one", quick=False, drafter="no-such-drafter"))
    assert nowhere is not None
    assert nowhere.startswith("the drafter: model source 'no-such-drafter' not found")
    assert nowhere.endswith("; or give drafter=FOLDER")
    assert "\n" not in nowhere
    there = _context(tmp_path, "e90_one", quick=False, drafter=str(smollm2_path))
    assert missing(there) is None
    assert missing(_context(tmp_path, "e90_one", drafter="no-such-drafter")) is None, "it has a stand-in"


def test_the_default_is_the_drafter_of_the_package(tmp_path: Path, smollm2_path: Path) -> None:
    default = _context(tmp_path, "e90_one", quick=False)
    assert missing(default) is None
    assert {path.name for path in drafter_files(default)} >= {"config.json", "model.safetensors"}
    assert f"drafter.source={DRAFTER.default}" in models(default)


def test_entries_are_quoted() -> None:
    assert policy_list("policies", ["fixed 2", "x a=[1,2]"]) == "policies=['fixed 2','x a=[1,2]']"
