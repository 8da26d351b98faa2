"""Counter-based randomness: distribution, independence of neighbours, and values that must not change."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import chisquare, kstest, pearsonr
from torch import Tensor

from dspark.seeding import Purpose, exponential_race, request_seed, stream_key, uniform

COUNT = 50_000
COUNTER = torch.arange(COUNT)
ZEROS = torch.zeros_like(COUNTER)

# Each stream counts one of its arguments up from a corner where a weak hash would show.
STREAMS = {
    "seeds": uniform(COUNTER, ZEROS, Purpose.DRAFT, ZEROS),
    "large_seeds": uniform(COUNTER + (1 << 62), ZEROS + 5, Purpose.FINAL, ZEROS + 5),
    "positions": uniform(ZEROS, COUNTER, Purpose.ACCEPT, ZEROS),
    "lanes": uniform(ZEROS + 7, ZEROS + 100, Purpose.DRAFT, COUNTER),
    "rounds": uniform(ZEROS + 7, COUNTER, Purpose.DRAFT, COUNTER),
    "strided_seeds": uniform(COUNTER << 20, ZEROS + 3, Purpose.ACCEPT, ZEROS + 2),
}


def _assert_uniform(u: Tensor) -> None:
    assert u.dtype == torch.float64
    assert (u >= 0).all()
    assert (u < 1).all()
    assert chisquare((u * 256).long().bincount(minlength=256)).pvalue > 1e-3
    assert kstest(u.numpy(), "uniform").pvalue > 1e-3


def _assert_independent(u: Tensor, v: Tensor) -> None:
    """No correlation, and pairs spread evenly over a 16 x 16 grid."""
    assert pearsonr(u.numpy(), v.numpy()).pvalue > 1e-4
    cells = (u * 16).long() * 16 + (v * 16).long()
    assert chisquare(cells.bincount(minlength=256)).pvalue > 1e-4


class TestUniform:
    @pytest.mark.parametrize("name", STREAMS)
    def test_is_uniform(self, name: str) -> None:
        _assert_uniform(STREAMS[name])

    @pytest.mark.parametrize("name", STREAMS)
    def test_low_bits_are_uniform_too(self, name: str) -> None:
        _assert_uniform((STREAMS[name] * 2.0**20) % 1)

    @pytest.mark.parametrize("name", STREAMS)
    @pytest.mark.parametrize("lag", [1, 2, 8])
    def test_neighbours_of_a_stream_are_independent(self, name: str, lag: int) -> None:
        u = STREAMS[name]
        _assert_independent(u[:-lag], u[lag:])

    @pytest.mark.parametrize(
        "other",
        [
            uniform(COUNTER, ZEROS + 1, Purpose.DRAFT, ZEROS),
            uniform(COUNTER, ZEROS, Purpose.DRAFT, ZEROS + 1),
            uniform(COUNTER, ZEROS, Purpose.ACCEPT, ZEROS),
            uniform(COUNTER, ZEROS, Purpose.FINAL, ZEROS),
            uniform(COUNTER + 1, ZEROS + 1, Purpose.DRAFT, ZEROS + 1),
            uniform(-COUNTER, ZEROS, Purpose.DRAFT, ZEROS),
        ],
        ids=["position", "lane", "accept", "final", "all", "negative"],
    )
    def test_a_stream_that_differs_in_one_argument_is_independent(self, other: Tensor) -> None:
        _assert_independent(STREAMS["seeds"][1:], other[1:])

    def test_names_do_not_collide(self) -> None:
        """Seeds, positions, purposes and lanes of a small run all give numbers of their own."""
        seeds, positions, lanes = (torch.arange(n) for n in (20, 30, 30))
        keys = [
            stream_key(seeds[:, None, None], positions[:, None], purpose, lanes).flatten()
            for purpose in Purpose
        ]
        assert torch.cat(keys).unique().numel() == 20 * 30 * 30 * len(Purpose)

    def test_shapes_broadcast(self) -> None:
        seeds, positions = torch.tensor([[1], [2]]), torch.tensor([5, 6, 7])
        grid = uniform(seeds, positions, Purpose.ACCEPT, torch.tensor([[9], [9]]))
        assert grid.shape == (2, 3)
        assert grid[1, 2] == uniform(torch.tensor(2), torch.tensor(7), Purpose.ACCEPT, 9)

    def test_lanes_may_be_plain_integers_of_any_size(self) -> None:
        for lane in (0, 4, 131_072):
            as_tensor = uniform(ZEROS[:1], ZEROS[:1], Purpose.FINAL, torch.tensor([lane]))
            assert uniform(ZEROS[:1], ZEROS[:1], Purpose.FINAL, lane) == as_tensor

    def test_values_never_change(self) -> None:
        """Recorded runs replay only as long as these hold; from an integer computation of its own."""
        for seed, position, purpose, lane in ((0, 0, 1, 0), (1, 2, 3, 4), (-5, 100, 4, 99), (2**62, 7, 2, 7)):
            ours = uniform(torch.tensor(seed), torch.tensor(position), Purpose(purpose), torch.tensor(lane))
            assert float(ours) == _uniform_reference(seed, position, purpose, lane)
        assert float(uniform(torch.tensor(0), torch.tensor(0), Purpose.TARGET)) == GOLDEN_UNIFORM


GOLDEN_UNIFORM = 0.5831230711856963
GOLDEN_RACE = [0.478507847, 0.376145482, 2.06228757]


def _mix64_reference(x: int) -> int:
    """Splitmix64's finaliser on Python integers."""
    mask = (1 << 64) - 1
    x &= mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def _key_reference(seed: int, position: int, purpose: int, lane: int) -> int:
    key = _mix64_reference(seed + 0x1E3779B97F4A7C15)
    key = _mix64_reference(key ^ (position * 8 + purpose))
    return _mix64_reference(key + lane * 0x2545F4914F6CDD1D)


def _uniform_reference(seed: int, position: int, purpose: int, lane: int) -> float:
    return (_key_reference(seed, position, purpose, lane) >> 11) / 2**53


class TestExponentialRace:
    def test_every_entry_is_a_standard_exponential(self) -> None:
        noise = exponential_race(COUNTER[:20_000], ZEROS[:20_000] + 3, Purpose.TARGET, 12)
        assert noise.dtype == torch.float32
        assert (noise > 0).all()
        assert noise.isfinite().all()
        for v in range(12):
            assert kstest(noise[:, v].double().numpy(), "expon").pvalue > 1e-4

    def test_one_position_is_exponential_over_the_vocabulary(self) -> None:
        noise = exponential_race(torch.tensor([1, 2]), torch.tensor([10, 10]), Purpose.TARGET, 50_000)
        for row in noise:
            assert kstest(row.double().numpy(), "expon").pvalue > 1e-3

    def test_small_values_are_fine_grained(self) -> None:
        """Races are won by small values: the smallest of V is exponential with mean 1/V."""
        noise = exponential_race(COUNTER[:2000], COUNTER[:2000], Purpose.TARGET, 5000)
        assert kstest(noise.amin(1).double().numpy() * 5000, "expon").pvalue > 1e-3

    @pytest.mark.parametrize("axis", ["seed", "position", "entry", "diagonal"])
    def test_neighbours_are_independent(self, axis: str) -> None:
        """Entries are hashed by exclusive or, under which near keys could share their noise."""
        seeds, positions = torch.arange(200).repeat_interleave(10), torch.arange(10).repeat(200)
        noise = exponential_race(seeds, positions, Purpose.TARGET, 25).view(200, 10, 25)
        u = 1 - (-noise.double()).exp()
        first, second = {
            "seed": (u[:-1], u[1:]),
            "position": (u[:, :-1], u[:, 1:]),
            "entry": (u[..., :-1], u[..., 1:]),
            "diagonal": (u[:, :-1, 1:], u[:, 1:, :-1]),
        }[axis]
        _assert_independent(first.flatten(), second.flatten())

    @pytest.mark.parametrize("purpose", list(Purpose))
    def test_winners_follow_p(self, purpose: Purpose) -> None:
        p = torch.tensor([0.5, 0.25, 0.125, 0.0625, 0.03125, 0.03125])
        noise = exponential_race(COUNTER, ZEROS + 1, purpose, 6)
        winners = (p / noise).argmax(-1).bincount(minlength=6)
        assert chisquare(winners, p.double() * COUNT).pvalue > 1e-3

    def test_a_row_is_the_same_in_any_batch(self) -> None:
        """Noise belongs to (seed, position): not to the row's place, nor to the vocabulary's end."""
        seeds, positions = torch.tensor([3, 900, -4]), torch.tensor([0, 77, 12])
        noise = exponential_race(seeds, positions, Purpose.TARGET, 1000)
        for i in range(3):
            assert torch.equal(
                exponential_race(seeds[i : i + 1], positions[i : i + 1], Purpose.TARGET, 1000)[0], noise[i]
            )
        assert torch.equal(exponential_race(seeds, positions, Purpose.TARGET, 600), noise[:, :600])
        flipped = exponential_race(seeds.flip(0), positions.flip(0), Purpose.TARGET, 1000)
        assert torch.equal(flipped, noise.flip(0))

    def test_values_never_change(self) -> None:
        noise = exponential_race(torch.tensor([11]), torch.tensor([5]), Purpose.TARGET, 3)[0]
        reference = torch.tensor([_bits_reference(11, 5, v) for v in range(3)], dtype=torch.float64)
        assert torch.allclose(noise.double(), -torch.log1p(-(reference + 0.5) / 2**31), rtol=1e-6)
        assert noise.tolist() == pytest.approx(GOLDEN_RACE, rel=1e-6)


def _bits_reference(seed: int, position: int, entry: int) -> int:
    key = _key_reference(seed, position, int(Purpose.TARGET), 0)
    bits = _hash32_reference(entry ^ (key & 0xFFFFFFFF))
    return _hash32_reference(bits ^ (key >> 32)) & 0x7FFFFFFF


def _hash32_reference(x: int) -> int:
    """The finaliser "lowbias32" on Python integers."""
    mask = 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & mask
    x = ((x ^ (x >> 15)) * 0x846CA68B) & mask
    return x ^ (x >> 16)


def test_requests_without_a_seed_get_one_each() -> None:
    """The same in every run, different between requests and between runs, and within int64."""
    seeds = [request_seed(run, f"request-{i}") for run in (0, 1) for i in range(500)]
    assert seeds == [request_seed(run, f"request-{i}") for run in (0, 1) for i in range(500)]
    assert len(set(seeds)) == 1000
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    numbers = uniform(torch.tensor(seeds), torch.zeros(1000, dtype=torch.int64), Purpose.FINAL)
    assert kstest(numbers.numpy(), "uniform").pvalue > 1e-3
    assert request_seed(0, "0") == GOLDEN_REQUEST_SEED


GOLDEN_REQUEST_SEED = 2928822574489494037
