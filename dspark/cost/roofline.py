"""A cost model from first principles: a pass takes the longer of its arithmetic and its memory traffic.

Williams, Waterman and Patterson, "Roofline" (CACM 52(4), 2009), one roof for the whole pass:
``seconds = max(FLOPs / peak, bytes / bandwidth)``. Layers are not timed one by one, so a pass whose
attention is memory bound while its products are compute bound is modelled as if the two overlapped:
a lower bound, which is what a roofline is. Bytes are weights (each once a pass; of experts, those
that some token chooses), the rows' caches and states once, and the new tokens' entries; activations
stay on the chip.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dspark.cost.base import CostModel, StepTime
from dspark.cost.hardware import BYTES_PER_VALUE, Device, device_of
from dspark.cost.pass_size import PassSize
from dspark.cost.shape_from_config import shape_of

if TYPE_CHECKING:
    from dspark.cost.shapes import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCost:
    """FLOPs, bytes and seconds of passes; float64 tensors of one shape."""

    flops: Tensor
    bytes: Tensor
    compute_s: Tensor
    memory_s: Tensor

    @property
    def seconds(self) -> Tensor:
        """The longer of the two."""
        return torch.maximum(self.compute_s, self.memory_s)

    @property
    def intensity(self) -> Tensor:
        """FLOP a byte."""
        return self.flops / self.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline(CostModel):
    """The roofline of a model on a device, and of a draft model beside it.

    A draft of depth d is d passes one after another of one token a row; the tokens that the last
    step accepted are assumed to be in the draft model's cache. Several devices share weights, caches
    and work evenly and exchange nothing: an ideal.

    Raises:
        ValueError: the device has no figure for the dtype, an efficiency is not in (0, 1], or another
            number is out of range.
    """

    target: ModelShape
    device: Device
    dtype: str  # of weights and arithmetic
    kv_dtype: str  # of the cache
    draft: ModelShape | None = None  # None: drafting takes no time
    num_devices: int = 1
    mfu: float = 1.0  # share of the peak FLOP/s that is reached
    mbu: float = 1.0  # share of the bandwidth that is reached
    overhead_s: float = 0.0  # of every step

    def __post_init__(self) -> None:
        for name in ("dtype", "kv_dtype"):
            if getattr(self, name) not in BYTES_PER_VALUE:
                known = ", ".join(BYTES_PER_VALUE)
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name)!r}")
        self.device.peak(self.dtype)
        for name in ("mfu", "mbu"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in (0, 1], got {getattr(self, name)!r}")
        if self.num_devices < 1:
            raise ValueError(f"num_devices must be >= 1, got {self.num_devices}")
        if not 0 <= self.overhead_s < float("inf"):
            raise ValueError(f"overhead_s must be >= 0 and finite, got {self.overhead_s!r}")

    @property
    def peak_flops(self) -> float:
        """FLOP/s that are reached."""
        return self.num_devices * self.mfu * self.device.peak(self.dtype)

    @property
    def bandwidth(self) -> float:
        """Bytes/s that are reached."""
        return self.num_devices * self.mbu * self.device.memory_bandwidth

    @property
    def ridge(self) -> float:
        """FLOP a byte from which a pass is bound by arithmetic."""
        return self.peak_flops / self.bandwidth

    def pass_cost(self, size: PassSize, shape: ModelShape | None = None) -> PassCost:
        """What passes of these sizes cost; ``shape`` None is the target."""
        shape = self.target if shape is None else shape
        flops = shape.flops(size)
        traffic = shape.weight_bytes(size.tokens, BYTES_PER_VALUE[self.dtype])
        traffic = traffic + shape.cache_bytes(size, BYTES_PER_VALUE[self.kv_dtype])
        return PassCost(
            flops=flops,
            bytes=traffic,
            compute_s=flops / self.peak_flops,
            memory_s=traffic / self.bandwidth,
        )

    def step_time_s(
        self, *, decode_rows: Tensor, tokens: Tensor, context_tokens: Tensor, draft_tokens: Tensor
    ) -> StepTime:
        """Seconds of steps with these sizes, in float64; all arguments broadcast.

        Args:
            decode_rows: rows of the step; 0 (prompt chunks only) counts as one row.
            tokens: N, tokens in the target's pass.
            context_tokens: cached tokens over all rows.
            draft_tokens: tokens drafted one after another for a row (the depth of the step).
        """
        rows, new, cached, depth = torch.broadcast_tensors(decode_rows, tokens, context_tokens, draft_tokens)
        target_s = self.pass_cost(PassSize.of(rows=rows, tokens=new, context_tokens=cached)).seconds
        draft_s = torch.zeros_like(target_s)
        if self.draft is not None:
            depth = depth.to(torch.float64)
            grown = rows * (depth - 1).clamp(min=0) / 2  # on average over the d passes
            size = PassSize.of(rows=rows, tokens=rows, context_tokens=cached + grown)
            draft_s = depth * self.pass_cost(size, self.draft).seconds
        return StepTime(
            draft_s=draft_s, target_s=target_s, overhead_s=torch.full_like(target_s, self.overhead_s)
        )

    def knee_tokens(self, *, rows: int = 1, context: int = 0) -> int:
        """The optimal number of tokens in a pass: the most for which it is still memory bound.

        Up to here a further token of a dense model adds its own cache entry and nothing else to the
        time; past it every token costs its FLOPs. With experts, tokens before the knee are not free
        either: each may call for experts that no other token of the pass uses.

        The difference of compute and memory time is convex in the tokens and negative at 0 (coverage
        is concave, attention quadratic), so it changes sign once.

        Args:
            rows: that share the tokens evenly; their caches are read too.
            context: cached tokens of each row.
        """

        def is_memory_bound(tokens: int) -> bool:
            cost = self.pass_cost(PassSize.of(rows=rows, tokens=tokens, context_tokens=rows * context))
            return bool(cost.compute_s <= cost.memory_s)

        below, above = 0, 1
        while is_memory_bound(above):
            below, above = above, 2 * above
        while above - below > 1:
            middle = (below + above) // 2
            below, above = (middle, above) if is_memory_bound(middle) else (below, middle)
        return below


def roofline_cost(
    target: str,
    hardware: str,
    dtype: str = "bfloat16",
    kv_dtype: str | None = None,
    draft: str | None = None,
    num_devices: int = 1,
    mfu: float = 1.0,
    mbu: float = 1.0,
    overhead_s: float = 0.0,
) -> Roofline:
    """The roofline of a model and a device by name.

    Args:
        target: a named shape, or a local folder with a ``config.json``.
        hardware: a named device, ``cpu`` (measured now), or a JSON file that describes one.
        dtype: of weights and arithmetic: float32, bfloat16 or float8.
        kv_dtype: of the cache; None: that of the weights.
        draft: the draft model, like ``target``; None: drafting takes no time.
        num_devices: that share the work ideally.
        mfu: share of the peak FLOP/s that is reached.
        mbu: share of the bandwidth that is reached.
        overhead_s: of every step.

    Raises:
        ValueError: no such model or device, or ``Roofline`` refuses the numbers.
    """
    return Roofline(
        target=shape_of(target),
        device=device_of(hardware),
        dtype=dtype,
        kv_dtype=dtype if kv_dtype is None else kv_dtype,
        draft=None if draft is None else shape_of(draft),
        num_devices=num_devices,
        mfu=mfu,
        mbu=mbu,
        overhead_s=overhead_s,
    )
