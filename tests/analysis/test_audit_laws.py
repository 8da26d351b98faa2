"""The exact chances of each verification rule: sums, marginals, and closed forms from the papers."""

from __future__ import annotations

import random
from collections import defaultdict
from fractions import Fraction
from itertools import product

import pytest

from dspark.analysis.audit import EXACT_RULES, exact_rule, noise
from dspark.analysis.audit.tables import Law, arg_max, point, random_table, target_joint, total_variation
from dspark.verification import Coupled, Greedy, Rejection, SyntheticAcceptance
from dspark.verification.base import Verification

ONE = Fraction(1)


def _laws(seed: int, vocab_size: int, count: int, zeros: float = 0.0) -> list[Law]:
    rng = random.Random(seed)
    return [random_table(rng, vocab_size, 0, zeros=zeros)[()] for _ in range(count)]


class TestSharedNoise:
    @pytest.mark.parametrize("vocab_size", [2, 3, 4])
    @pytest.mark.parametrize("zeros", [0.0, 0.4])
    def test_one_race_follows_its_law(self, vocab_size: int, zeros: float) -> None:
        for law in _laws(1, vocab_size, 20, zeros):
            chances = {token: chance for token, chance, _ in noise.race(noise.whole(vocab_size), law)}
            assert chances == {token: mass for token, mass in enumerate(law) if mass}

    @pytest.mark.parametrize("vocab_size", [2, 3, 4])
    def test_two_races_agree_as_daliri_et_al_say(self, vocab_size: int) -> None:
        """Both choose i with probability 1 / sum_v max(p_v / p_i, q_v / q_i): the smallest of V races."""
        for seed in range(10):
            p, q = _laws(seed, vocab_size, 2)
            joint: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
            for drafted, chance, region in noise.race(noise.whole(vocab_size), q):
                for chosen, share, _ in noise.race(region, p):
                    joint[drafted, chosen] += chance * share
            for i in range(vocab_size):
                ratios = (max(a / p[i], b / q[i]) for a, b in zip(p, q, strict=True))
                assert joint[i, i] == 1 / sum(ratios, Fraction(0))
            for token in range(vocab_size):
                assert sum(joint[token, v] for v in range(vocab_size)) == q[token]
                assert sum(joint[v, token] for v in range(vocab_size)) == p[token]
            tv = total_variation(dict(enumerate(p)), dict(enumerate(q)))
            agreement = sum((joint[i, i] for i in range(vocab_size)), Fraction(0))
            assert (1 - tv) / (1 + tv) <= agreement <= 1 - tv

    def test_the_order_of_races_does_not_matter(self) -> None:
        p, q, r = _laws(3, 3, 3)

        def joint(order: tuple[int, ...]) -> dict[tuple[int, ...], Fraction]:
            found: dict[tuple[int, ...], Fraction] = {}
            laws = (p, q, r)
            paths = [((), ONE, noise.whole(3))]
            for which in order:
                paths = [
                    ((*won, token), chance * share, region)
                    for won, chance, known in paths
                    for token, share, region in noise.race(known, laws[which])
                ]
            for won, chance, _ in paths:
                key = tuple(won[order.index(which)] for which in range(3))
                found[key] = found.get(key, Fraction(0)) + chance
            return found

        assert joint((0, 1, 2)) == joint((2, 0, 1)) == joint((1, 2, 0))

    def test_the_same_race_again_is_decided(self) -> None:
        p, q = _laws(4, 3, 2)
        for _, _, region in noise.race(noise.whole(3), q):
            for token, _, smaller in noise.race(region, p):
                assert [(t, c) for t, c, _ in noise.race(smaller, p)] == [(token, ONE)]


class TestRules:
    @pytest.mark.parametrize("name", EXACT_RULES)
    @pytest.mark.parametrize("seed", range(4))
    def test_one_round_of_full_depth_follows_the_target(self, name: str, seed: int) -> None:
        """Draw two drafts, verify them, complete with the target: its own law of three tokens."""
        rule, rng = EXACT_RULES[name], random.Random(seed)
        target, drafter = random_table(rng, 3, 2), random_table(rng, 3, 2)
        joint: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
        for first in rule.draw(drafter[()], 0, ()):
            for second in rule.draw(drafter[first.token,], 1, first.known):
                drafts = (first.token, second.token)
                p = [target[drafts[:k]] for k in range(3)]
                q = [drafter[drafts[:k]] for k in range(2)]
                ends = rule.ends(drafts, p, q, second.known)
                assert sum((end.probability for end in ends), Fraction(0)) == 1
                for end in ends:
                    begun = (*drafts[: end.accepted], end.next_token)
                    weight = first.probability * second.probability * end.probability
                    for output, mass in _completed(rule, target, begun, end.known).items():
                        joint[output] += weight * mass
        wanted = target_joint({path: rule.target_law(law) for path, law in target.items()}, 3)
        assert dict(joint) == wanted

    @pytest.mark.parametrize("name", EXACT_RULES)
    def test_identical_models_accept_everything(self, name: str) -> None:
        rule, (p, after) = EXACT_RULES[name], _laws(5, 3, 2)
        for drawn in rule.draw(p, 0, ()):
            ends = rule.ends((drawn.token,), [p, after], [p], drawn.known)
            assert {end.accepted for end in ends} == {1}

    def test_greedy_takes_the_first_of_equal_tokens(self) -> None:
        half = (Fraction(1, 2), Fraction(1, 2), Fraction(0))
        assert arg_max(half) == 0
        assert [end.next_token for end in EXACT_RULES["greedy"].ends((), [half], [], ())] == [0]
        assert EXACT_RULES["greedy"].target_law(half) == point(0, 3)

    @pytest.mark.parametrize("rule", [Rejection(), Coupled(), Greedy()])
    def test_a_verification_has_the_exact_rule_of_its_name(self, rule: Verification) -> None:
        assert exact_rule(rule).name == rule.name
        assert exact_rule(rule).any_length_exact is rule.unbiased_for_class_d

    def test_a_rule_that_claims_nothing_is_refused(self) -> None:
        with pytest.raises(ValueError, match="does not claim to follow the target"):
            exact_rule(SyntheticAcceptance((0.5,)))

    def test_an_unknown_rule_is_refused(self) -> None:
        class Mine(Rejection):
            name = "mine"

        with pytest.raises(ValueError, match="the exact law of verification 'mine' is not known"):
            exact_rule(Mine())


def _completed(rule, target, begun, known):
    """Plain decoding from ``begun``, under the rule's own noise."""
    if len(begun) == 3:
        return {begun: ONE}
    found: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for end in rule.ends((), [target[begun]], [], known):
        for output, mass in _completed(rule, target, (*begun, end.next_token), end.known).items():
            found[output] += end.probability * mass
    return found


def test_total_variation_is_the_largest_difference_of_an_event() -> None:
    a, b = (dict(enumerate(law)) for law in _laws(7, 4, 2))
    events = (
        abs(sum((a[i] - b[i] for i in range(4) if chosen[i]), Fraction(0)))
        for chosen in product((False, True), repeat=4)
    )
    assert total_variation(a, b) == max(events)
