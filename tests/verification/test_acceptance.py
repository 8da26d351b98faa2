"""The acceptance laws: the output follows the target exactly, and the figures of the papers come out."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
import torch

from dspark.analysis.audit.tables import constant_table, target_joint
from dspark.verification.acceptance import AcceptanceLaw, BlockLaw, Evidence, TokenLaw
from tests.verification.coded_laws import coded_accepted, coded_joint, evidence, outcome_probabilities
from tests.verification.toy_tables import (
    Path,
    Rule,
    Stop,
    Table,
    Trim,
    after_token_one,
    block_outcomes,
    drafts,
    expected_accepted,
    never,
    output_joint,
    point_table,
    random_table,
    token_outcomes,
    unless_likely,
    while_drafter_is_sure,
    whole,
)

LAWS: list[tuple[AcceptanceLaw, Rule]] = [(TokenLaw(), token_outcomes), (BlockLaw(), block_outcomes)]
BOTH = pytest.mark.parametrize(("law", "rule"), LAWS, ids=["token", "block"])
THIRD = Fraction(1, 3)


def _tables(seed: int, vocab_size: int, depth: int) -> tuple[Table, Table]:
    rng = random.Random(seed)
    return random_table(rng, vocab_size, depth + 1), random_table(rng, vocab_size, depth + 1)


def _assert_close(coded: dict[Path, float], exact: dict[Path, Fraction]) -> None:
    for path in {*coded, *exact}:
        assert abs(coded.get(path, 0.0) - float(exact.get(path, Fraction(0)))) < 1e-12, path


class TestOutputLaw:
    @BOTH
    @pytest.mark.parametrize(
        ("stop", "trim"),
        [
            (never, whole),
            (unless_likely, whole),
            (after_token_one, whole),
            (never, while_drafter_is_sure),
            (unless_likely, while_drafter_is_sure),
        ],
    )
    @pytest.mark.parametrize(("vocab_size", "depth"), [(2, 3), (3, 2), (4, 1), (3, 3), (4, 2)])
    def test_is_the_targets(
        self, law: AcceptanceLaw, rule: Rule, stop: Stop, trim: Trim, vocab_size: int, depth: int
    ) -> None:
        """Drafts of ragged length, stopped by their own tokens or cut by what precedes them."""
        for seed in range(5):
            target, draft = _tables(1000 * vocab_size + 10 * depth + seed, vocab_size, depth)
            exact = output_joint(rule, target, draft, depth, stop=stop, trim=trim)
            assert exact == target_joint(target, depth + 1)
            _assert_close(coded_joint(law, target, draft, depth, stop=stop, trim=trim), exact)

    @BOTH
    def test_is_the_targets_at_the_largest_size(self, law: AcceptanceLaw, rule: Rule) -> None:
        target, draft = _tables(7, 4, 3)
        exact = output_joint(rule, target, draft, 3, stop=unless_likely)
        assert exact == target_joint(target, 4)
        _assert_close(coded_joint(law, target, draft, 3, stop=unless_likely), exact)

    @BOTH
    @pytest.mark.parametrize("with_q", [False, True])
    @pytest.mark.parametrize("seed", range(4))
    def test_is_the_targets_for_deterministic_drafts(
        self, law: AcceptanceLaw, rule: Rule, with_q: bool, seed: int
    ) -> None:
        """A missing q means point masses, and says the same as a q of point masses."""
        rng = random.Random(seed)
        target, draft = random_table(rng, 3, 4), point_table(rng, 3, 4)
        exact = output_joint(rule, target, draft, 3)
        assert exact == target_joint(target, 4)
        _assert_close(coded_joint(law, target, draft, 3, with_q=with_q), exact)

    @BOTH
    @pytest.mark.parametrize("seed", range(3))
    def test_is_the_targets_for_deterministic_drafts_cut_by_their_tokens(
        self, law: AcceptanceLaw, rule: Rule, seed: int
    ) -> None:
        """Class E: a deterministic draft may be pruned by anything."""
        rng = random.Random(seed)
        target, draft = random_table(rng, 3, 4), point_table(rng, 3, 4)

        def drop_odd(path: Path, draft: Table) -> list[tuple[int, Fraction]]:
            return [(next((k for k, token in enumerate(path) if token % 2), len(path)), Fraction(1))]

        exact = output_joint(rule, target, draft, 3, trim=drop_odd)
        assert exact == target_joint(target, 4)
        _assert_close(coded_joint(law, target, draft, 3, trim=drop_odd, with_q=False), exact)


class TestBiasIsDetected:
    """The enumeration finds the known biased depth rules, so that its silence means something."""

    @BOTH
    def test_dropping_an_unlikely_draft(self, law: AcceptanceLaw, rule: Rule) -> None:
        """p = (.7, .3), q = (.6, .4), drop x if q(x) < 1/2: A is kept or, if B was drawn, redrawn."""
        target = constant_table([Fraction(7, 10), Fraction(3, 10)], 2)
        draft = constant_table([Fraction(6, 10), Fraction(4, 10)], 2)

        def drop_unlikely(path: Path, draft: Table) -> list[tuple[int, Fraction]]:
            return [(int(draft[()][path[0]] >= Fraction(1, 2)), Fraction(1))]

        exact = output_joint(rule, target, draft, 1, trim=drop_unlikely)
        assert _first_token(exact) == {0: Fraction(88, 100), 1: Fraction(12, 100)}
        _assert_close(coded_joint(law, target, draft, 1, trim=drop_unlikely), exact)

    @BOTH
    def test_choosing_the_depth_in_retrospect(self, law: AcceptanceLaw, rule: Rule) -> None:
        """DSpark, arXiv 2607.05147, appendix A: depth arg max of survival over step cost.

        Speeds 1, .5, .45 and a_1 = .8 give 1.0 and .9 for lengths 0 and 1; length 2 gives
        (1 + .8 + .8 c_2) * .45, that is 1.134 after A (c_2 = .9) and .81 after B (c_2 = 0).
        """
        target = constant_table([Fraction(7, 10), Fraction(3, 10)], 3)
        draft = constant_table([Fraction(1, 2), Fraction(1, 2)], 3)

        def retrospective(path: Path, draft: Table) -> list[tuple[int, Fraction]]:
            confidence = Fraction(9, 10) if path[0] == 0 else Fraction(0)
            first = Fraction(8, 10)
            tokens = [1, 1 + first, 1 + first + first * confidence]
            speeds = [Fraction(1), Fraction(1, 2), Fraction(45, 100)]
            gains = [a * b for a, b in zip(tokens, speeds, strict=True)]
            return [(gains.index(max(gains)), Fraction(1))]

        exact = output_joint(rule, target, draft, 2, trim=retrospective)
        assert _first_token(exact) == {0: Fraction(85, 100), 1: Fraction(15, 100)}
        _assert_close(coded_joint(law, target, draft, 2, trim=retrospective), exact)

    @BOTH
    @pytest.mark.parametrize(
        ("by_token", "expected"), [(True, Fraction(36, 100)), (False, Fraction(30, 100))]
    )
    def test_two_requests_and_one_slot(
        self, law: AcceptanceLaw, rule: Rule, by_token: bool, expected: Fraction
    ) -> None:
        """Two requests alike, p = (.3, .7), q = (.6, .4); the slot goes to the larger q of the drawn token.

        A wins against B and half of the ties, .4 + .6/2 = .7, and B only ties, .4/2 = .2.
        A tie broken before the tokens are known is exact.
        """
        target = constant_table([Fraction(3, 10), Fraction(7, 10)], 2)
        draft = constant_table([Fraction(6, 10), Fraction(4, 10)], 2)

        def share_slot(path: Path, draft: Table) -> list[tuple[int, Fraction]]:
            admitted = Fraction(1, 2)
            if by_token:
                admitted = (Fraction(7, 10), Fraction(2, 10))[path[0]]
            return [(1, admitted), (0, 1 - admitted)]

        exact = output_joint(rule, target, draft, 1, trim=share_slot)
        assert _first_token(exact)[0] == expected
        _assert_close(coded_joint(law, target, draft, 1, trim=share_slot), exact)

    @BOTH
    def test_a_q_that_was_not_sampled_from(self, law: AcceptanceLaw, rule: Rule) -> None:
        """Drafts drawn from a sharpened law and judged by the raw one (or the reverse) are biased."""
        target, _ = _tables(3, 3, 2)
        raw = constant_table([Fraction(1, 2), Fraction(3, 10), Fraction(2, 10)], 3)
        sharp = constant_table([Fraction(5, 8), Fraction(3, 8), Fraction(0)], 3)
        truth = target_joint(target, 3)
        coded = coded_joint(law, target, sharp, 2, told=raw)
        distance = sum(abs(coded.get(path, 0.0) - float(mass)) for path, mass in truth.items()) / 2
        assert distance > 0.05
        _assert_close(coded_joint(law, target, sharp, 2), truth)


def _first_token(joint: dict[Path, Fraction]) -> dict[int, Fraction]:
    law: dict[int, Fraction] = {}
    for path, mass in joint.items():
        law[path[0]] = law.get(path[0], Fraction(0)) + mass
    return law


class TestAcceptedDrafts:
    @pytest.mark.parametrize(
        ("depth", "token", "block"),
        [
            (1, Fraction(2, 3), Fraction(2, 3)),
            (2, Fraction(10, 9), Fraction(11, 9)),
            (3, Fraction(38, 27), Fraction(5, 3)),
            (4, Fraction(130, 81), Fraction(166, 81)),
            (6, Fraction(1330, 729), Fraction(1933, 729)),
        ],
    )
    def test_published_example(self, depth: int, token: Fraction, block: Fraction) -> None:
        """p = (1/3, 2/3) and q = (2/3, 1/3) everywhere; depth 2 is in arXiv 2403.10444."""
        target = constant_table([THIRD, 2 * THIRD], depth)
        draft = constant_table([2 * THIRD, THIRD], depth)
        for (law, rule), expected in zip(LAWS, (token, block), strict=True):
            assert expected_accepted(rule, target, draft, depth) == expected
            assert coded_accepted(law, target, draft, depth) == pytest.approx(float(expected), abs=1e-12)

    @pytest.mark.parametrize("seed", range(8))
    def test_block_is_never_behind(self, seed: int) -> None:
        target, draft = _tables(100 + seed, 3, 3)
        token = coded_accepted(TokenLaw(), target, draft, 3)
        block = coded_accepted(BlockLaw(), target, draft, 3)
        assert token == pytest.approx(float(expected_accepted(token_outcomes, target, draft, 3)), abs=1e-12)
        assert block == pytest.approx(float(expected_accepted(block_outcomes, target, draft, 3)), abs=1e-12)
        assert block >= token - 1e-12

    @BOTH
    def test_all_of_them_where_the_drafter_is_the_target(self, law: AcceptanceLaw, rule: Rule) -> None:
        target, _ = _tables(5, 3, 3)
        assert expected_accepted(rule, target, target, 3) == 3
        seen = evidence([path for path, _ in drafts(target, 3)], target, target, with_q=True)
        assert (law.acceptance(seen) == 1).all()


class TestSelect:
    """``select`` against a plain reading of the rules, with uniforms on either side of every bound."""

    ACCEPTANCE = torch.tensor([[0.5, 0.25, 1.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)

    def test_token_stops_at_the_first_failure(self) -> None:
        law = TokenLaw()
        assert law.select(torch.tensor([[0.4, 0.3, 0.0]] * 3), self.ACCEPTANCE).tolist() == [1, 1, 0]
        assert law.select(torch.tensor([[0.4, 0.2, 0.999]] * 3), self.ACCEPTANCE).tolist() == [3, 1, 0]
        assert law.select(torch.tensor([[0.6, 0.2, 0.0]] * 3), self.ACCEPTANCE).tolist() == [0, 0, 0]

    def test_block_takes_the_last_success(self) -> None:
        law = BlockLaw()
        acceptance = torch.tensor([[0.5, 0.25, 0.1]], dtype=torch.float64)
        assert law.select(torch.tensor([[0.6, 0.3, 0.05]]), acceptance).tolist() == [3]
        assert law.select(torch.tensor([[0.6, 0.2, 0.15]]), acceptance).tolist() == [2]
        assert law.select(torch.tensor([[0.4, 0.3, 0.15]]), acceptance).tolist() == [1]
        assert law.select(torch.tensor([[0.6, 0.3, 0.15]]), acceptance).tolist() == [0]

    @BOTH
    def test_equality_is_a_failure_and_certainty_a_success(self, law: AcceptanceLaw, rule: Rule) -> None:
        """u < p/q is strict: a draft the target cannot emit fails even at u = 0."""
        below_one = 1 - 2.0**-53
        uniforms = torch.tensor([[0.5], [0.0], [below_one]], dtype=torch.float64)
        acceptance = torch.tensor([[0.5], [0.0], [1.0]], dtype=torch.float64)
        assert law.select(uniforms, acceptance).tolist() == [0, 0, 1]

    @BOTH
    def test_rows_without_drafts(self, law: AcceptanceLaw, rule: Rule) -> None:
        assert law.select(torch.zeros(2, 0), torch.zeros(2, 0)).tolist() == [0, 0]

    @BOTH
    def test_counts_agree_with_the_integrated_chances(self, law: AcceptanceLaw, rule: Rule) -> None:
        """The midpoints of a grid of uniforms give the law that the enumeration assumes."""
        target, draft = _tables(11, 3, 2)
        path, _ = max(drafts(draft, 2), key=lambda each: each[1])
        seen = evidence([path], target, draft, with_q=True)
        acceptance = law.acceptance(seen)
        grid = (torch.arange(400, dtype=torch.float64) + 0.5) / 400
        uniforms = torch.cartesian_prod(grid, grid)
        counts = law.select(uniforms, acceptance.expand(len(uniforms), 2)).bincount(minlength=3) / len(
            uniforms
        )
        assert torch.allclose(
            counts.double(), outcome_probabilities(law, acceptance, seen.lengths)[0], atol=0.006
        )


@BOTH
def test_numbers_of_a_row_do_not_depend_on_its_company(law: AcceptanceLaw, rule: Rule) -> None:
    """A lone row of a large vocabulary might be summed in parts by several threads; bitwise all the same."""
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(48, 49_152, generator=generator).softmax(-1)
    q = torch.randn(16, 2, 49_152, generator=generator).softmax(-1)
    tokens = torch.randint(49_152, (16, 2), generator=generator)

    def acceptance(rows: slice) -> torch.Tensor:
        count = len(tokens[rows])
        seen = Evidence(
            p=p[rows.start * 3 : rows.stop * 3],
            first=torch.arange(count) * 3,
            tokens=tokens[rows],
            lengths=torch.full((count,), 2),
            q=q[rows],
            q_rows=torch.arange(count),
        )
        return law.acceptance(seen)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        together = acceptance(slice(0, 16))
        assert torch.equal(together, torch.cat([acceptance(slice(i, i + 1)) for i in range(16)]))
    finally:
        torch.set_num_threads(before)


class TestResidual:
    @BOTH
    def test_without_mass_falls_back_to_the_target(self, law: AcceptanceLaw, rule: Rule) -> None:
        """p = q up to rounding, below q in every entry that counts: only p is left to draw from."""
        p = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
        q = torch.tensor([[[0.5, 0.5000001, 0.0]]])
        seen = Evidence(
            p=p,
            first=torch.tensor([0]),
            tokens=torch.tensor([[1]]),
            lengths=torch.tensor([1]),
            q=q,
            q_rows=torch.tensor([0]),
        )
        assert law.final(seen, torch.tensor([0])).tolist() == p[:1].tolist()

    @BOTH
    def test_without_mass_after_a_point_mass(self, law: AcceptanceLaw, rule: Rule) -> None:
        p = torch.tensor([[0.0, 0.9999999, 0.0], [1.0, 0.0, 0.0]])
        seen = Evidence(
            p=p,
            first=torch.tensor([0]),
            tokens=torch.tensor([[1]]),
            lengths=torch.tensor([1]),
            q=None,
            q_rows=torch.tensor([0]),
        )
        assert law.final(seen, torch.tensor([0])).tolist() == p[:1].tolist()

    @BOTH
    def test_never_holds_the_rejected_point_mass(self, law: AcceptanceLaw, rule: Rule) -> None:
        p = torch.tensor([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0]])
        seen = Evidence(
            p=p,
            first=torch.tensor([0]),
            tokens=torch.tensor([[1]]),
            lengths=torch.tensor([1]),
            q=None,
            q_rows=torch.tensor([0]),
        )
        assert law.final(seen, torch.tensor([0])).tolist() == [[pytest.approx(0.2), 0.0, pytest.approx(0.3)]]

    @BOTH
    def test_arguments_are_left_alone(self, law: AcceptanceLaw, rule: Rule) -> None:
        target, draft = _tables(2, 3, 2)
        seen = evidence([path for path, _ in drafts(draft, 2)], target, draft, with_q=True)
        assert seen.q is not None
        before = [x.clone() for x in (seen.p, seen.q, seen.tokens, seen.lengths)]
        law.acceptance(seen)
        law.final(seen, seen.lengths)
        law.final(seen, torch.zeros_like(seen.lengths))
        for old, new in zip(before, (seen.p, seen.q, seen.tokens, seen.lengths), strict=True):
            assert torch.equal(old, new)
