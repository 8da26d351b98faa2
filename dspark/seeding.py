"""Counter-based randomness: every number is a pure function of where it is used.

``(seed, position, purpose, lane)`` names a number; there is no generator to advance, so a row that
idles, is trimmed or does not speculate consumes nothing, and neighbours cannot disturb a row.

``position`` is the absolute position of the token the number decides. ``lane`` separates numbers
of one position: the vocabulary entry for Gumbel races, the committed length at the start of the
round for everything that a round may draw again (a draft position can be drawn anew in the next
round, and block verification lets the first draw influence earlier positions, so re-using it would
bias the output).

The hash is two rounds of a 32-bit finaliser with good avalanche (C. Wellons' "lowbias32" search,
https://nullprogram.com/blog/2018/07/31/) over a 64-bit key, written in tensor operations on
integers, which every device computes alike.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum

import torch
from torch import Tensor

_MASK32 = 0xFFFFFFFF


class Purpose(IntEnum):
    """What a random number decides; separates streams of one position."""

    TARGET = 1  # the Gumbel race of coupled verification, shared by drafter and target
    DRAFT = 2  # the drafter's own token
    ACCEPT = 3  # accept or reject a draft token, by whatever rule
    FINAL = 4  # the recovered or bonus token, and plain decoding
    SYNTHETIC = 5  # the synthetic drafter's own profile
    POLICY = 6  # what a depth policy explores


def _mix64(x: Tensor) -> Tensor:
    """Splitmix64's finaliser on int64 (wrapping products, logical shifts)."""
    x = (x ^ _shift_right(x, 30)) * -4658895280553007687  # 0xBF58476D1CE4E5B9
    x = (x ^ _shift_right(x, 27)) * -7723592293110705685  # 0x94D049BB133111EB
    return x ^ _shift_right(x, 31)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical shift of int64, which torch only shifts arithmetically."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def stream_key(seeds: Tensor, positions: Tensor, purpose: Purpose, lanes: Tensor | int = 0) -> Tensor:
    """Int64 keys, one a ``(seed, position, purpose, lane)``; arguments broadcast."""
    key = _mix64(seeds + 0x1E3779B97F4A7C15)
    key = _mix64(key ^ (positions * 8 + int(purpose)))
    lanes = torch.as_tensor(lanes, device=key.device)  # products wrap in tensors only
    return _mix64(key + lanes * 0x2545F4914F6CDD1D)


def uniform(seeds: Tensor, positions: Tensor, purpose: Purpose, lanes: Tensor | int = 0) -> Tensor:
    """Float64 in [0, 1) with 53 random bits, one a ``(seed, position, purpose, lane)``."""
    key = stream_key(seeds, positions, purpose, lanes)
    return _shift_right(key, 11).to(torch.float64) * 2.0**-53


def exponential_race(seeds: Tensor, positions: Tensor, purpose: Purpose, vocab_size: int) -> Tensor:
    """Float32 [R, V] standard exponentials E, one a vocabulary entry.

    ``argmin_v E_v / p_v`` is a sample of p and equals ``argmax_v log p_v + g_v`` with the Gumbel
    noise ``g = -log E`` (the form used by Daliri, Musco and Suresh, arXiv 2408.07978). Small
    exponentials decide a race, and near 0 their resolution is 2**-31.

    Args:
        seeds: int [R].
        positions: int [R].
        purpose: stream.
        vocab_size: V.
    """
    key = stream_key(seeds, positions, purpose)
    low, high = _as_int32(key & _MASK32), _as_int32(_shift_right(key, 32))
    entries = torch.arange(vocab_size, dtype=torch.int32, device=seeds.device)
    bits = _hash32_(entries ^ low[:, None])
    bits = _hash32_(bits.bitwise_xor_(high[:, None]))
    # 31 bits, so that the small values keep all their bits in float32
    u = bits.bitwise_and_(0x7FFFFFFF).to(torch.float32).add_(0.5).mul_(2.0**-31).clamp_(max=1 - 2.0**-24)
    return u.neg_().log1p_().neg_()


def _as_int32(x: Tensor) -> Tensor:
    """The int64 value in [0, 2**32) as the int32 with the same bits."""
    return torch.where(x >= 1 << 31, x - (1 << 32), x).to(torch.int32)


def _hash32_(x: Tensor) -> Tensor:
    """In-place 32-bit finaliser on int32 (wrapping products, logical shifts)."""
    x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF)).mul_(0x7FEB352D)
    x.bitwise_xor_((x >> 15).bitwise_and_(0x1FFFF)).mul_(-2073254261)  # 0x846CA68B
    return x.bitwise_xor_((x >> 16).bitwise_and_(0xFFFF))


def request_seed(seed: int, request_id: str) -> int:
    """The seed of a request that brings none: differs between requests, the same in every run."""
    digest = hashlib.blake2b(f"{seed}/{request_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
