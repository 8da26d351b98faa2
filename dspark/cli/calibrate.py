"""`dspark calibrate`: drafts of full depth, an estimator's answers, temperatures, and scores of both."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dspark.cli.launch import Invocation, fail, launch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dspark.analysis.calibration import Calibration
    from dspark.cli.session import Session
    from dspark.config.calibrate import CalibrateConfig
    from dspark.policies.check import SignalSource
    from dspark.policies.estimators import Estimator

SCHEMA = 1
"""The version of ``calibration.json``; that of ``temperatures.json`` is its readers'."""


def command(arguments: Sequence[str]) -> int:
    """The exit code of `dspark calibrate ARGUMENTS`."""
    if any(word.lstrip("+~").startswith(("policy=", "policy.")) for word in arguments):
        return fail("`calibrate` verifies every draft in full and takes no policy: set calibrate.depth")
    return launch("calibrate", arguments, _job)


def _job(invocation: Invocation) -> int:
    # these import torch, which commands that only explain themselves must not wait for
    from dspark.config.schema import Component, parse_config

    config = parse_config(invocation.plain)
    settings = config.calibrate
    if settings is None or config.compare is not None:
        raise ValueError("`calibrate` takes the section calibrate, and no other command's")
    from dspark.config.check import prepare, signal_source

    drafter = signal_source(config)
    if drafter is None:
        raise ValueError("`calibrate` needs a drafter whose tokens are accepted or not, got drafter=none")
    estimator = _estimator(settings)
    _check_signals(settings.estimator, estimator, drafter)
    from dspark.policies.recorder import Recorder

    label = f"fixed {settings.depth}"
    fixed = Component(target="dspark.policies.fixed.Fixed", settings={"depth": settings.depth})
    prepared = prepare(config, {label: fixed})
    if len(prepared.requests) < 2:
        raise ValueError(
            "`calibrate` fits on some requests and judges by others, so it needs two or more, got 1: "
            "set workload.num_requests=16"
        )
    recorder = Recorder(depth=settings.depth, signals=drafter.signals)
    from dspark.cli.observing import record_observations
    from dspark.cli.session import open_session

    with open_session(invocation, replace(prepared, policies={label: recorder})) as session:
        row = record_observations(session, label, lambda last: last.verdict)
        _report(session, settings, estimator, row)
    return 0


def _estimator(settings: CalibrateConfig) -> Estimator:
    from dspark.config.build import named
    from dspark.policies.estimators import build_estimator

    return named("calibrate", build_estimator, settings.estimator, **(settings.settings or {}))


def _check_signals(name: str, estimator: Estimator, drafter: SignalSource) -> None:
    """Raises where the drafter does not tell what the estimator reads."""
    missing = ", ".join(sorted(estimator.needs - drafter.signals))
    if missing:
        given = ", ".join(sorted(drafter.signals)) or "none"
        raise ValueError(
            f"estimator {name} needs the signal {missing}, which the drafter does not give; it gives {given}:"
            " choose another calibrate.estimator"
        )


def _report(session: Session, settings: CalibrateConfig, estimator: Estimator, row: dict[str, Any]) -> None:
    """Files, figure and table of what the recording says about the estimator."""
    from dspark.analysis.calibration import calibrate
    from dspark.analysis.predictions import predict
    from dspark.analysis.reliability import calibration_table, draw_reliability
    from dspark.cli.console import stdout
    from dspark.metrics.observations import read_observations

    path = session.run_dir.path
    calibration = calibrate(
        predict(read_observations(path), estimator, settings.depth),
        [request.request_id for request in session.prepared.requests],
        fit_fraction=settings.fit_fraction,
        num_bins=settings.num_bins,
        min_samples=settings.min_samples,
        seed=settings.seed,
    )
    title = (
        f"{settings.estimator}: {session.target.name}, {row['num_requests']} requests of {row['workload']}, "
        f"drafter {row['drafter']}, verification {row['verification']}"
    )
    figure = draw_reliability(calibration, path / "figures" / "reliability.png", title=title)
    temperatures = _write(session, settings, calibration, row)
    session.tracker.summarise({"": row}, [figure])
    console = stdout()
    console.print(calibration_table(calibration, title))
    for line in _notes(calibration):
        console.print(line, markup=False, soft_wrap=True)
    console.print(
        f"figure: {figure}\nscores: {path / 'calibration.json'}\ntemperatures: {temperatures}", soft_wrap=True
    )


def _write(
    session: Session, settings: CalibrateConfig, calibration: Calibration, row: dict[str, Any]
) -> Path:
    """The path of ``temperatures.json``, written beside ``calibration.json``."""
    from dspark.analysis.calibration import to_json
    from dspark.cli.provenance import command_line
    from dspark.metrics.trace import write_json
    from dspark.policies.estimators.calibrated import SCHEMA as TEMPERATURES_SCHEMA

    path = session.run_dir.path
    recorded = json.loads((path / "provenance.json").read_text(encoding="utf-8"))
    origin = {
        "command": command_line(session.invocation),
        **{key: row[key] for key in ("target", "drafter", "verification", "temperature", "workload")},
        **{key: recorded[key] for key in ("started_at", "versions", "git")},
    }
    what = {"estimator": settings.estimator, "settings": dict(settings.settings or {})}
    scores = to_json(calibration)
    write_json(path / "calibration.json", {"schema": SCHEMA, **what, **scores, "provenance": origin})
    fit = {
        "num_bins": settings.num_bins,
        "num_requests": len(calibration.fit_requests),
        "num_reached": [position.num_fit_reached for position in calibration.positions],
        "fitted": [position.fitted for position in calibration.positions],
    }
    written = {"temperatures": list(calibration.temperatures), "fit": fit, "provenance": origin}
    file = path / "temperatures.json"
    write_json(file, {"schema": TEMPERATURES_SCHEMA, **what, **written})
    return file


def _notes(calibration: Calibration) -> list[str]:
    """What a reader of the table should know beside it."""
    from dspark.policies.estimators.temperature_scaling import GRID

    notes = []
    extreme = [str(p.position) for p in calibration.positions if p.temperature in (min(GRID), max(GRID))]
    if extreme:
        notes.append(
            f"temperatures at an end of what was tried ({min(GRID):g} to {max(GRID):g}), positions "
            f"{', '.join(extreme)}: the estimator says little about acceptance there"
        )
    if not any(position.fitted for position in calibration.positions):
        notes.append(
            f"nothing was fitted: fewer than {calibration.min_samples} drafts in the fit half; run more "
            "requests (workload.num_requests) or tokens (sampling.max_new_tokens)"
        )
    return notes
