"""`dspark profile`: what steps cost on this machine, as a table, a line fitted to it, and two figures."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dspark.cli.launch import Invocation, fail, launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.cli.session import Session
    from dspark.config.check import Prepared
    from dspark.config.profile import ProfileConfig
    from dspark.config.schema import Config
    from dspark.cost.profile import Machine, Profile, ProfiledDrafter, ProfiledModel


def command(arguments: Sequence[str]) -> int:
    """The exit code of `dspark profile ARGUMENTS`."""
    if any(word.lstrip("+~").startswith(("policy=", "policy.")) for word in arguments):
        return fail("`profile` measures every depth and takes no policy: set profile.depths")
    return launch("profile", arguments, _job)


def _job(invocation: Invocation) -> int:
    # these import torch, which commands that only explain themselves must not wait for
    from dspark.config.schema import parse_config

    config = parse_config(invocation.plain)
    settings = config.profile
    if settings is None or config.compare is not None or config.calibrate is not None:
        raise ValueError("`profile` takes the section profile, and no other command's")
    _check_clock(config)
    from dspark.config.check import prepare, signal_source
    from dspark.config.schema import Component

    deepest = max(settings.depths, default=0) if signal_source(config) is not None else 0
    label = f"fixed {deepest}"
    fixed = Component(target="dspark.policies.fixed.Fixed", settings={"depth": deepest})
    prepared = prepare(config, {label: fixed})
    _check_room(settings, prepared)
    from dspark.cli.session import open_session

    with open_session(invocation, replace(prepared, policies={})) as session:
        profile, left_out = _measured(session, settings)
        _report(session, settings, profile, left_out)
    return 0


def _check_clock(config: Config) -> None:
    """Raises where seconds would come from anything but the wall."""
    if config.cost.target is not None:
        raise ValueError("`profile` measures what steps cost, so it takes cost=none")
    if config.engine.clock != "wall":
        raise ValueError(f"`profile` measures by the wall, got engine.clock={config.engine.clock}")


def _check_room(settings: ProfileConfig, prepared: Prepared) -> None:
    """Raises where the models' contexts are too short for what is to be measured."""
    from dspark.cli.profile_measure import room_tokens
    from dspark.cli.profile_samples import pass_sizes
    from dspark.config.check import draft_context, model_facts

    target = model_facts(prepared.target_folder, "target.source")
    limit = target.max_context
    longest = max(size.context + -(-size.tokens // size.rows) for size in pass_sizes(settings)[0])
    if longest > limit:
        raise ValueError(
            f"profile.contexts and profile.tokens make rows of {longest} tokens, and the target's context is "
            f"{limit}: measure shorter ones"
        )
    limit = min(limit, draft_context(prepared, target) or limit)
    depths = [0, *settings.depths] * (settings.repeats + 1)  # each also runs once untimed
    drafting = settings.draft_prompt_tokens + room_tokens(depths)
    if drafting > limit:
        raise ValueError(
            f"steps of depths {list(settings.depths)}, {settings.repeats} repeats each, need {drafting} "
            f"tokens a row, and the context is {limit}: lower profile.repeats, profile.depths or "
            "profile.draft_prompt_tokens"
        )


def _measured(session: Session, settings: ProfileConfig) -> tuple[Profile, list[tuple[int, int]]]:
    """The profile, and the pairs of rows and context that were left out."""
    from dspark.cli.profile_measure import measure_passes, measure_steps, num_runs
    from dspark.cli.profile_progress import RunProgress
    from dspark.cli.profile_samples import Samples, draft_sizes, pass_sizes
    from dspark.cost.profile import Profile

    passes, left_out = pass_sizes(settings)
    drafts = draft_sizes(settings, has_drafter=session.drafter is not None)
    with Samples(session.run_dir.path, repeats=settings.repeats) as samples:
        progress = RunProgress(session.console, num_runs=num_runs(samples, [*passes, *drafts]))
        with progress.part("passes of the target"):
            measure_passes(session.target, samples, passes, seed=settings.seed, progress=progress.advance)
        with progress.part("steps of the engine"):
            measure_steps(
                session,
                samples,
                drafts,
                prompt_tokens=settings.draft_prompt_tokens,
                seed=settings.seed,
                progress=progress.advance,
            )
        profile = Profile(
            machine=_machine(session),
            model=_model(session, settings),
            drafter=_drafter(session, settings),
            passes=samples.passes(passes),
            drafts=samples.drafts(drafts),
        )
    return profile, left_out


def _machine(session: Session) -> Machine:
    import torch
    import transformers

    from dspark.cli.provenance import processor
    from dspark.cost.profile import Machine

    device = session.target.device
    return Machine(
        processor=processor(),
        num_cpus=os.cpu_count() or 1,
        num_threads=torch.get_num_threads(),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        torch=torch.__version__,
        transformers=transformers.__version__,
    )


def _model(session: Session, settings: ProfileConfig) -> ProfiledModel:
    from dspark.cost.profile import ProfiledModel
    from dspark.models.graph_buckets import TOKEN_BUCKETS

    target, captured = session.target, settings.captured_tokens
    if captured is None:
        captured = () if target.graphs is None else TOKEN_BUCKETS
    return ProfiledModel(
        name=target.name,
        dtype=str(target.dtype).removeprefix("torch."),
        numerics=target.numerics,
        attention=target.model.config._attn_implementation,
        captured_tokens=captured,
    )


def _drafter(session: Session, settings: ProfileConfig) -> ProfiledDrafter:
    from dspark.cli.session import drafter_label
    from dspark.cost.profile import ProfiledDrafter

    prepared = session.prepared
    longest = max(len(request.prompt_ids) for request in prepared.requests)
    return ProfiledDrafter(
        name=drafter_label(prepared),
        verification=prepared.verification.name,
        temperature=prepared.config.sampling.temperature,
        prompt_tokens=min(longest, settings.draft_prompt_tokens),
    )


def _report(
    session: Session, settings: ProfileConfig, profile: Profile, left_out: Sequence[tuple[int, int]]
) -> None:
    """Files, figures and tables."""
    from dspark.analysis.profile_figures import draw_step_time, draw_tokens_per_s
    from dspark.analysis.profile_report import (
        draft_table,
        fit_lines,
        knee_lines,
        noise_line,
        pass_table,
        summary_rows,
        title,
    )
    from dspark.cli.console import stdout
    from dspark.cost.profile_file import save_profile

    path = session.run_dir.path
    save_profile(profile, path / "profile.json")
    if settings.path is not None:
        save_profile(profile, settings.path)
    figures = [
        draw_step_time(profile, path / "figures" / "step_time.png"),
        draw_tokens_per_s(profile, path / "figures" / "tokens_per_s.png"),
    ]
    rows = summary_rows(profile)
    session.run_dir.write_summary(_summary(session, rows))
    session.tracker.summarise({}, figures)
    console = stdout()
    console.print(title(profile), markup=False, soft_wrap=True)
    console.print(pass_table(profile))
    console.print(draft_table(profile))
    lines = [*knee_lines(profile), *fit_lines(profile), noise_line(profile)]
    for line in [*lines, *_left_out(settings, left_out)]:
        console.print(line, markup=False, soft_wrap=True)
    written = [path / "profile.json", *([] if settings.path is None else [settings.path])]
    console.print(f"figures: {figures[0]} {figures[1]}", soft_wrap=True)
    console.print(f"profile: {' and '.join(map(str, written))}", soft_wrap=True)
    console.print(f"use it: dspark run policy=smartspec cost=profile cost.path={written[-1]}", soft_wrap=True)


def _summary(session: Session, rows: list[dict[str, Any]]) -> dict[str, Any]:
    from dspark.cli.provenance import command_line
    from dspark.metrics.summary import SUMMARY_SCHEMA

    told = {"command": command_line(session.invocation), "complete": True}
    return {"schema": SUMMARY_SCHEMA, **told, "rows": rows}


def _left_out(settings: ProfileConfig, pairs: Sequence[tuple[int, int]]) -> list[str]:
    if not pairs:
        return []
    shown = ", ".join(f"{rows} rows of {context}" for rows, context in pairs)
    return [f"left out, above profile.max_cached_tokens={settings.max_cached_tokens}: {shown} cached tokens"]
