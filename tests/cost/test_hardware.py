"""Devices by name, from a file, and measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dspark.cost.hardware import DEVICES, device_of, device_to_json, load_device
from dspark.cost.measured_device import measure_cpu


class TestNamed:
    @pytest.mark.parametrize(
        ("name", "ridge"),
        [
            ("h100", 295.2),  # 989 TFLOP/s / 3.35 TB/s
            ("h200", 206.0),  # 989 / 4.8
            ("b200", 292.2),  # 2250 / 7.7
            ("a100", 153.0),  # 312 / 2.039
            ("rtx4090", 163.9),  # 165.2 / 1.008
        ],
    )
    def test_the_ridge_is_flops_over_bandwidth(self, name: str, ridge: float) -> None:
        assert device_of(name).ridge("bfloat16") == pytest.approx(ridge, abs=0.05)

    @pytest.mark.parametrize("name", DEVICES)
    def test_figures_are_dense_si_and_sourced(self, name: str) -> None:
        device = DEVICES[name]
        assert "NVIDIA" in device.source
        assert device.memory_bytes % 1e9 == 0
        # 8-bit products are twice as fast as 16-bit ones; a sparse figure among them would break that
        if "float8" in device.peak_flops:
            assert device.peak("float8") == pytest.approx(2 * device.peak("bfloat16"), rel=2e-3)
        assert device.peak("float32") < device.peak("bfloat16")

    def test_an_unknown_name_is_answered_with_the_likely_one(self) -> None:
        with pytest.raises(
            ValueError, match=r"no hardware is named 'H20': did you mean 'h200'\? there are"
        ) as e:
            device_of("H20")
        assert all(name in str(e.value) for name in [*DEVICES, "cpu", ".json"])

    def test_a_dtype_that_the_device_lacks(self) -> None:
        with pytest.raises(ValueError, match="A100 80GB SXM has no peak FLOP/s for dtype float8: .*bfloat16"):
            device_of("a100").peak("float8")


class TestFile:
    def test_a_device_survives_its_file(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.json"
        path.write_text(json.dumps(device_to_json(DEVICES["a100"])))
        assert device_of(str(path)) == DEVICES["a100"]

    @pytest.mark.parametrize(
        ("written", "message"),
        [
            ("[1]", "must be an object of memory_bandwidth, .*got list"),
            ("{", "must be a JSON object, got"),
            ('{"name": "x"}', "must be an object of .*got name"),
        ],
    )
    def test_a_file_that_is_no_device(self, tmp_path: Path, written: str, message: str) -> None:
        path = tmp_path / "mine.json"
        path.write_text(written)
        with pytest.raises(ValueError, match=message):
            load_device(path)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"peak_flops": {"bfloat16": "fast"}}, "must have numbers"),
            ({"peak_flops": 3}, "must have numbers"),
            ({"peak_flops": {"int4": 1e12}}, "peak_flops goes by float32, bfloat16, float8, got int4"),
            ({"peak_flops": {}}, "peak_flops goes by .*got none"),
            ({"memory_bandwidth": 0}, "memory_bandwidth must be > 0 and finite, got 0"),
        ],
    )
    def test_wrong_figures_are_refused(self, tmp_path: Path, change: dict, message: str) -> None:
        path = tmp_path / "mine.json"
        path.write_text(json.dumps(device_to_json(DEVICES["a100"]) | change))
        with pytest.raises(ValueError, match=message):
            load_device(path)

    def test_a_file_that_is_not_there(self) -> None:
        with pytest.raises(ValueError, match=r"cannot read the hardware file nowhere\.json: No such file"):
            device_of("nowhere.json")


class TestMeasured:
    def test_this_machine_is_between_a_toy_and_a_supercomputer(self) -> None:
        device = measure_cpu(read_bytes=64_000_000, product_size=256, repeats=3)
        assert set(device.peak_flops) == {"float32"}
        assert 1e8 < device.peak("float32") < 1e14
        assert 1e8 < device.memory_bandwidth < 1e13
        assert device.memory_bytes > 1e8
        assert device.source.startswith("measured: ")
        assert "64 MB" in device.source
        assert "256 × 256" in device.source

    def test_larger_work_takes_longer_so_rates_stay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # a clock that advances by 2 s a look: every run takes 2 s
        ticks = iter(range(0, 1000, 2))
        monkeypatch.setattr("dspark.cost.measured_device.time.perf_counter", lambda: next(ticks))
        device = measure_cpu(read_bytes=4_000, product_size=10, repeats=3)
        assert device.memory_bandwidth == 4_000 / 2
        assert device.peak("float32") == 2 * 10**3 / 2

    def test_nothing_to_measure(self) -> None:
        with pytest.raises(ValueError, match="repeats is too small"):
            measure_cpu(repeats=0)


def test_a_device_is_compared_by_its_figures() -> None:
    assert replace(DEVICES["h200"]) == DEVICES["h200"]
    assert replace(DEVICES["h200"], memory_bytes=1.0) != DEVICES["h200"]
