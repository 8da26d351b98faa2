"""`dspark export`: what was found here, as a file that another program reads."""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dspark.cli.launch import Invocation, launch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dspark.config.export import ExportConfig

    Exported = tuple[str, list[str]]  # the file's text, and notes beside it


def command(arguments: Sequence[str]) -> int:
    """The exit code of `dspark export ARGUMENTS`."""
    return launch("export", arguments, _job)


def _job(invocation: Invocation) -> int:
    from dspark.config.export import parse_export

    config = parse_export(invocation.plain)
    exports = {"vllm": _vllm, "sglang": _sglang, "tensorrt_llm": _tensorrt_llm, "spec_bench": _spec_bench}
    text, notes = exports[config.to](config.export)
    out = config.export.out
    if out is None:
        print(text, end="", flush=True)
    else:
        _write(out.expanduser(), text)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


def _vllm(settings: ExportConfig) -> Exported:
    from dspark.analysis.export.vllm import notes, speculative_config
    from dspark.analysis.schedule import load_schedule

    assert settings.schedule is not None, "checked by the configuration"
    assert settings.method is not None, "checked by the configuration"
    schedule = load_schedule(settings.schedule.expanduser())
    item = speculative_config(schedule, method=settings.method, model=settings.model)
    return _line(item), notes(schedule, settings.method)


def _tensorrt_llm(settings: ExportConfig) -> Exported:
    from dspark.analysis.export.tensorrt_llm import notes, speculative_config, to_yaml
    from dspark.analysis.schedule import load_schedule

    assert settings.schedule is not None, "checked by the configuration"
    schedule = load_schedule(settings.schedule.expanduser())
    return to_yaml(speculative_config(schedule)), notes(schedule)


def _sglang(settings: ExportConfig) -> Exported:
    """The file of the one source that is given."""
    from dspark.analysis.export import sglang

    if settings.schedule is not None:
        from dspark.analysis.schedule import load_schedule

        schedule = load_schedule(settings.schedule.expanduser())
        return _line(sglang.adaptive_config(schedule)), sglang.adaptive_notes(schedule)
    if settings.temperatures is not None:
        return _sts(settings.temperatures.expanduser())
    assert settings.profile is not None, "checked by the configuration"
    assert settings.depth is not None, "checked by the configuration"
    path = settings.profile.expanduser()
    _read_object(path, "profile")  # its reader imports torch, which a wrong path must not wait for
    from dspark.analysis.export.full_verify import full_verify_seconds
    from dspark.cost.profile_file import load_profile

    profile = load_profile(path)
    tokens, seconds = full_verify_seconds(profile, depth=settings.depth, context=settings.context)
    return _line(sglang.sps_table(tokens, seconds)), []


def _sts(path: Path) -> Exported:
    """SGLang's calibration, from the temperatures in a file of `dspark calibrate`."""
    from dspark.analysis.export.sglang import sts_calibration, sts_notes

    written = _read_object(path, "temperatures")
    from dspark.policies.estimators.calibrated import load_temperatures

    temperatures = load_temperatures(path)
    origin = written.get("provenance") or {}
    item = sts_calibration(
        temperatures, estimator=str(written.get("estimator")), dataset=str(origin.get("workload", ""))
    )
    return _line(item), sts_notes(temperatures)


def _spec_bench(settings: ExportConfig) -> Exported:
    assert settings.run is not None, "checked by the configuration"
    run = settings.run.expanduser()
    summary, recorded = (_read_object(run / f"{name}.json", "run") for name in ("summary", "provenance"))
    row = _row(summary, run)
    # these import torch, which a wrong folder must not wait for
    from dspark.analysis.export.answers import read_answers
    from dspark.analysis.export.questions import read_questions
    from dspark.analysis.export.spec_bench import answer_lines, notes

    answers = read_answers(run)
    questions = read_questions(recorded["config"]["workload"])
    name = "-".join(row[key] for key in ("target", "drafter", "policy"))
    lines = answer_lines(
        answers,
        questions,
        model_id=settings.model_id or re.sub(r"[^\w.=-]+", "-", name),  # it is a file's name
        answered_at_s=datetime.fromisoformat(recorded["started_at"]).timestamp(),
    )
    return "".join(map(_line, lines)), notes(lines, questions)


def _row(summary: dict[str, Any], run: Path) -> dict[str, Any]:
    """The one row of a run's summary."""
    rows = summary.get("rows")
    if summary.get("complete") is not True:
        raise ValueError(f"the run in {run} is not complete: resume it with resume=true")
    if not isinstance(rows, list) or len(rows) != 1:
        raise ValueError(
            f"{run} is not the folder of a `dspark run`: an export is of one policy at one batch size"
        )
    return rows[0]


def _read_object(path: Path, what: str) -> dict[str, Any]:
    """The parsed JSON object in a file.

    Raises:
        ValueError: the file cannot be read, or holds something else.
    """
    try:
        item = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"export.{what}: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"export.{what}: {path} is not JSON: {error}") from error
    if not isinstance(item, dict):
        raise ValueError(f"export.{what}: {path} must be a JSON object, got {type(item).__name__}")
    return item


def _line(item: dict[str, Any]) -> str:
    return json.dumps(item, allow_nan=False, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> None:
    """Write the file, and the folder it is in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"export.out: cannot write {path}: {error.strerror}") from error
    print(f"written: {path}", file=sys.stderr)
