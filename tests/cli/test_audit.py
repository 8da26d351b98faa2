"""`dspark audit`: what it prints, writes and returns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from dspark.config.paths import config_dir
from tests.cli.conftest import read_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Result

OUT = "hydra.run.dir=out"
QUICK = (OUT, "audit.num_random=2", "audit.num_hunted=6", "audit.num_probed=60", "audit.trace_steps=0")
POLICIES = sorted(path.stem for path in (config_dir() / "policy").glob("*.yaml"))


class TestPublishedCases:
    def test_appendix_a_refutes_the_arg_max(self, dspark: Callable[..., Result]) -> None:
        result = dspark("audit", "policy=retrospective_argmax", "audit.case=appendix_a", OUT)
        assert result.code == 1
        assert "0.85 / 0.15" in result.out
        assert "0.70 / 0.30" in result.out
        assert "BIASED under rejection, total variation 3/20 = 0.15; class declared D, found D" in result.out
        assert "when x_1 = B the policy verifies 0 of 2 drafted tokens" in result.out
        assert "largest bias under the other rules: block 0.15, coupled 0.00, greedy 0.00" in result.out
        (row,) = read_json(Path("out/summary.json"))["rows"]
        assert (row["bias_exact"], row["biased"]) == ("3/20", True)
        (audit,) = read_json(Path("out/audit.json"))["audits"]
        (world,) = audit["worlds"]
        assert (world["law_exact"], world["target_exact"]) == ([["17/20", "3/20"]], [["7/10", "3/10"]])

    def test_appendix_a_proves_the_early_stop(self, dspark: Callable[..., Result]) -> None:
        result = dspark("audit", "policy=prefix_scheduler", "audit.case=appendix_a", OUT)
        assert result.code == 0
        assert "prefix_scheduler: exact under rejection; class declared C, found C" in result.out

    @pytest.mark.parametrize(
        ("arguments", "shown"),
        [
            (["policy=sampled_drop", "audit.case=sampled_drop"], "0.88 / 0.12"),
            (["policy=tetris", "audit.case=tetris"], "0.36 / 0.64"),
            (["policy=tetris", "policy.capacity=1", "audit.case=tetris"], "0.36 / 0.64"),
        ],
    )
    def test_biased_ones_become_exact_under_coupled(
        self, dspark: Callable[..., Result], arguments: list[str], shown: str
    ) -> None:
        biased = dspark("audit", *arguments, *QUICK)
        assert biased.code == 1
        assert shown in biased.out
        for exact in (["verification=coupled"], ["verification=greedy"], ["audit.drafter=deterministic"]):
            result = dspark("audit", *arguments, *exact, *QUICK)
            assert result.code == 0, exact
            assert shown not in result.out
            assert "which does no harm here" in result.out

    def test_the_bias_of_appendix_a_is_found_without_it(self, dspark: Callable[..., Result]) -> None:
        more = ("audit.case=random", "audit.num_random=0", "audit.num_hunted=120")
        result = dspark("audit", "policy=retrospective_argmax", *QUICK, *more)
        assert result.code == 1
        assert "counterexample (hunt " in result.out


class TestSeveral:
    def test_every_policy_in_one_table(self, dspark: Callable[..., Result]) -> None:
        """A search as short as this may miss what a policy looks at; it never finds more than is declared."""
        result = dspark("audit", "policy=all", "audit.case=appendix_a", *QUICK)
        assert result.code == 1  # some are biased, as they declare
        rows = self._rows(result)
        found = {name for name, row in rows.items() if row["biased"]}
        assert {"retrospective_argmax", "sampled_drop"} <= found
        for row in rows.values():
            assert row["class_found"] <= row["class_declared"]  # "A" to "D"
            assert not row["biased"] or row["class_declared"] == "D"

    @pytest.mark.slow
    def test_the_class_of_every_policy_is_found(self, dspark: Callable[..., Result]) -> None:
        result = dspark("audit", "policy=all", "audit.case=appendix_a", OUT)
        assert result.code == 1
        assert "class declared = class found for all" in result.out
        for row in self._rows(result).values():
            assert row["class_found"] == row["class_declared"]
            assert row["biased"] is (row["class_declared"] == "D")

    @staticmethod
    def _rows(result: Result) -> dict[str, dict[str, Any]]:
        """The summary's rows by policy; what must hold of all of them."""
        rows = {row["policy"].split()[0]: row for row in read_json(Path("out/summary.json"))["rows"]}
        assert sorted(rows) == POLICIES
        for row in rows.values():
            assert set(row["bias_by_rule"]) == {"rejection", "block", "coupled", "greedy"}
            assert row["bias_by_rule"]["coupled"] == row["bias_by_rule"]["greedy"] == 0
        assert f"1 of {len(POLICIES)}: " in result.err
        return rows

    def test_a_list_of_policies(self, dspark: Callable[..., Result]) -> None:
        listed = "audit.policies=[fixed 2,'confidence depth=2 stop=before signal=top1_probability']"
        result = dspark("audit", listed, *QUICK)
        assert result.code == 0
        found = {row["policy"]: row["class_found"] for row in read_json(Path("out/summary.json"))["rows"]}
        assert found == {"fixed 2": "A", "confidence depth=2 signal=top1_probability stop=before": "C"}

    def test_a_sweep_ends_with_one_table(self, dspark: Callable[..., Result]) -> None:
        quick = [word for word in QUICK if word != OUT]
        sweep = ("--multirun", "policy=fixed,sampled_drop", "audit.case=sampled_drop", "hydra.sweep.dir=out")
        result = dspark("audit", *sweep, *quick)
        assert result.code == 1
        assert result.out.count("2 policies: 1 exact; 1 biased (sampled_drop)") == 1
        assert read_json(Path("out/0/summary.json"))["rows"][0]["biased"] is False
        assert read_json(Path("out/1/summary.json"))["rows"][0]["biased"] is True


class TestOwnPolicies:
    def test_a_policy_that_lies_about_its_class(self, dspark: Callable[..., Result], tmp_path: Path) -> None:
        folder = tmp_path / "conf" / "policy"
        folder.mkdir(parents=True)
        node = {"_target_": "tests.analysis.adversaries.PeekAtTokens", "depth": 2}
        (folder / "mine.yaml").write_text(yaml.safe_dump(node))
        result = dspark("audit", "--config-dir", str(tmp_path / "conf"), "policy=mine", *QUICK)
        assert result.code == 1
        assert "mine 2: BIASED under rejection" in result.out
        assert "class declared A, found D" in result.out

    def test_the_perturbation_test_runs_on_real_steps(self, dspark: Callable[..., Result]) -> None:
        real = (
            "audit.case=traces",
            "audit.trace_steps=4",
            "audit.trace_redraws=12",
            "audit.num_probed=20",
            OUT,
        )
        result = dspark("audit", "policy=fixed", *real)
        assert result.code == 0
        assert (
            "real steps: another token changed 0 of 12 decisions about its own position, in 3 steps"
            in result.out
        )
        (row,) = read_json(Path("out/summary.json"))["rows"]
        assert (row["num_trace_decisions"], row["num_trace_flips"], row["num_worlds"]) == (12, 0, 0)


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["policy=fixd"], "policy=fixd: no such policy; did you mean 'fixed'?"),
            (["policy.depth=-1"], "policy: depth must be >= 0, got -1"),
            (["audit.case=apendix_a"], "did you mean 'appendix_a'?"),
            (["audit.drafter=ngram"], "audit.drafter must be one of sampled, deterministic, got 'ngram'"),
            (["audit.num_random=-1"], "audit: num_random must be >= 0, got -1"),
            (["audit.policies=[]"], "audit: policies must name at least one"),
            (["audit.policies=[fixed,fixed]"], "audit: policies must not repeat an entry"),
            (["audit.policies=['fixed 4',fixed]"], "audit.policies lists the policy 'fixed 4' twice"),
            (["audit.policies=[fixed]", "policy.depth=2"], "policy.depth=2 sets nothing"),
            (["policy=all", "policy.depth=2"], "policy.depth=2 sets nothing"),
            (["verification=synthetic"], "does not claim to follow the target"),
            (["audit.case=traces", "audit.trace_steps=0"], "case=traces needs trace_steps >= 1"),
            (["workload.num_requests=2"], "the configuration has no 'workload'"),
        ],
    )
    def test_a_mistake_is_one_line(
        self, dspark: Callable[..., Result], arguments: list[str], message: str
    ) -> None:
        assert message in dspark("audit", *arguments, OUT).error
        assert not Path("out/summary.json").exists()

    def test_a_policy_that_flips_coins_is_told_what_is_wrong(
        self, dspark: Callable[..., Result], tmp_path: Path
    ) -> None:
        folder = tmp_path / "conf" / "policy"
        folder.mkdir(parents=True)
        (folder / "mine.yaml").write_text("_target_: tests.analysis.adversaries.CoinFlip\ndepth: 2\n")
        result = dspark("audit", "--config-dir", str(tmp_path / "conf"), "policy=mine", *QUICK)
        assert "hooks must be pure" in result.error
