"""Peak arithmetic and memory bandwidth of devices: from data sheets, from a file, or measured.

FLOP/s are dense: NVIDIA prints those of its 2:4 sparsity, which are twice as many. All units are SI.
"""

from __future__ import annotations

import difflib
import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

BYTES_PER_VALUE: Mapping[str, int] = MappingProxyType({"float32": 4, "bfloat16": 2, "float8": 1})
"""Bytes of a weight or cached value by dtype."""

CPU = "cpu"
"""The name that stands for this machine, measured when it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What a roofline needs to know of a machine.

    Raises:
        ValueError: a number is not positive, or a dtype is unknown.
    """

    name: str
    peak_flops: Mapping[str, float]  # FLOP/s of matrix products, by dtype
    memory_bandwidth: float  # bytes/s
    memory_bytes: float
    source: str

    def __post_init__(self) -> None:
        unknown = [dtype for dtype in self.peak_flops if dtype not in BYTES_PER_VALUE]
        if unknown or not self.peak_flops:
            got = unknown[0] if unknown else "none"
            raise ValueError(f"peak_flops goes by {', '.join(BYTES_PER_VALUE)}, got {got}")
        numbers = {"memory_bandwidth": self.memory_bandwidth, "memory_bytes": self.memory_bytes}
        for what, value in {**numbers, **{f"peak_flops.{k}": v for k, v in self.peak_flops.items()}}.items():
            if not 0 < value < math.inf:
                raise ValueError(f"{what} must be > 0 and finite, got {value!r}")

    def peak(self, dtype: str) -> float:
        """FLOP/s at that dtype.

        Raises:
            ValueError: the device has no figure for it.
        """
        if dtype not in self.peak_flops:
            known = ", ".join(self.peak_flops)
            raise ValueError(
                f"{self.name} has no peak FLOP/s for dtype {dtype}: set dtype to one it has, {known}"
            )
        return self.peak_flops[dtype]

    def ridge(self, dtype: str) -> float:
        """FLOP a byte from which a pass is bound by arithmetic.

        Raises:
            ValueError: see ``peak``.
        """
        return self.peak(dtype) / self.memory_bandwidth


def _device(name: str, source: str, *, tflops: Mapping[str, float], tb_per_s: float, gb: float) -> Device:
    peaks = {dtype: value * 1e12 for dtype, value in tflops.items()}
    return Device(
        name=name, peak_flops=peaks, memory_bandwidth=tb_per_s * 1e12, memory_bytes=gb * 1e9, source=source
    )


DEVICES: Mapping[str, Device] = MappingProxyType(
    {
        "h100": _device(
            "H100 SXM",
            "NVIDIA H100 Tensor Core GPU data sheet, nvidia.com/en-us/data-center/h100",
            tflops={"bfloat16": 989, "float8": 1979, "float32": 67},
            tb_per_s=3.35,
            gb=80,
        ),
        "h200": _device(
            "H200 SXM",
            "NVIDIA H200 Tensor Core GPU data sheet, nvidia.com/en-us/data-center/h200",
            tflops={"bfloat16": 989, "float8": 1979, "float32": 67},
            tb_per_s=4.8,
            gb=141,
        ),
        "b200": _device(
            "B200 (HGX)",
            "NVIDIA Blackwell data sheet, one GPU of HGX B200; the architecture brief has 8 TB/s and "
            "80 TFLOP/s float32",
            tflops={"bfloat16": 2250, "float8": 4500, "float32": 75},
            tb_per_s=7.7,
            gb=180,
        ),
        "a100": _device(
            "A100 80GB SXM",
            "NVIDIA A100 data sheet (1758950, 80GB SXM), nvidia.com/en-us/data-center/a100",
            tflops={"bfloat16": 312, "float32": 19.5},
            tb_per_s=2.039,
            gb=80,
        ),
        "rtx4090": _device(
            "RTX 4090",
            "NVIDIA Ada GPU architecture white paper 2.01, appendix A; tensor products summed in float32",
            tflops={"bfloat16": 165.2, "float8": 330.3, "float32": 82.6},
            tb_per_s=1.008,
            gb=24,
        ),
    }
)
"""Devices by name."""


def device_of(choice: str) -> Device:
    """The device that a name, ``cpu`` (measured now) or the path of a JSON file stands for.

    Raises:
        ValueError: no such name or file, or a file that describes no device.
    """
    if choice in DEVICES:
        return DEVICES[choice]
    if choice == CPU:
        from dspark.cost.measured_device import measure_cpu  # takes a second or two

        return measure_cpu()
    if choice.endswith(".json"):
        return load_device(Path(choice).expanduser())
    names = [*DEVICES, CPU]
    near = difflib.get_close_matches(choice.lower(), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(
        f"no hardware is named {choice!r}: {hint}there are {', '.join(names)}, or a .json file of your own"
    )


def device_to_json(device: Device) -> dict[str, Any]:
    """The device as plain values; ``load_device`` reads them back."""
    return asdict(device)


def load_device(path: Path) -> Device:
    """The device in a JSON file: an object with the fields of ``Device``.

    Raises:
        ValueError: there is no such file, or it is no such object.
    """
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read the hardware file {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"the hardware file {path} must be a JSON object, got: {error}") from error
    known = {field.name for field in fields(Device)}
    if not isinstance(written, dict) or written.keys() != known:
        got = ", ".join(written) if isinstance(written, dict) else type(written).__name__
        raise ValueError(
            f"the hardware file {path} must be an object of {', '.join(sorted(known))}, "
            f"got {got or 'nothing'}"
        )
    peaks = written["peak_flops"]
    numbers = [written["memory_bandwidth"], written["memory_bytes"]]
    numbers += list(peaks.values()) if isinstance(peaks, dict) else [None]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in numbers):
        raise ValueError(
            f"the hardware file {path} must have numbers in memory_bandwidth, memory_bytes and peak_flops"
        )
    try:
        return Device(**{**written, "peak_flops": peaks})
    except ValueError as error:
        raise ValueError(f"the hardware file {path}: {error}") from error
