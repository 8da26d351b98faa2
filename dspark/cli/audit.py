"""`dspark audit`: proves a policy lossless on toy models and real steps, or gives a counterexample."""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dspark.cli.launch import Invocation, launch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dspark.analysis.audit import Audit, TraceResult
    from dspark.config.audit import AuditCommand
    from dspark.config.schema import Component
    from dspark.policies.base import Policy

EXIT_BIASED = 1
EVERY_POLICY = "all"
SCHEMA = 1
"""The version of ``audit.json``."""

DRAFT_NOISE = 0.1
"""Of the synthetic draft model's weights, against those of the synthetic target."""


def command(arguments: Sequence[str]) -> int:
    """The exit code of `dspark audit ARGUMENTS`: 0 exact, 1 biased; of several policies the worst."""
    arguments = [
        f"audit.policies=[{EVERY_POLICY}]" if word == f"policy={EVERY_POLICY}" else word for word in arguments
    ]
    audits: list[Audit] = []
    is_sweep = any(word in ("-m", "--multirun") for word in arguments)
    code = launch("audit", arguments, partial(_job, audits=audits, is_sweep=is_sweep))
    if is_sweep and audits:
        _print_table(audits)
    return code


def _job(invocation: Invocation, *, audits: list[Audit], is_sweep: bool) -> int:
    # these import torch, which commands that only explain themselves must not wait for
    from dspark.analysis.audit import exact_rule
    from dspark.config import build
    from dspark.config.audit import parse_audit

    config = parse_audit(invocation.plain)
    nodes = _policies(config, invocation)
    where = "policy" if len(nodes) == 1 else "policy {!r}"
    policies = {label: build.build_policy(node, where.format(label)) for label, node in nodes.items()}
    exact_rule(build.build_verification(config.verification))
    found = _examined(config, policies)
    audits += found
    _write(invocation, config, found)
    if not is_sweep:
        _show(invocation, config, found)
    return EXIT_BIASED if any(audit.is_biased for audit in found) else 0


def _policies(config: AuditCommand, invocation: Invocation) -> dict[str, Component]:
    """Components by label: the one of the group, or those of ``audit.policies``.

    Raises:
        ValueError: an entry is wrong, or two entries are the same policy.
    """
    from dspark.config.compose import PolicyEntry, compose_policy, parse_entry, policy_label, policy_options
    from dspark.config.policies import listed_policies

    texts = config.audit.policies
    if texts is None:
        option = invocation.policy_option or "policy"
        entry = PolicyEntry(option=option, value=None, overrides=())
        _, defaults = compose_policy(entry, invocation.search_path)
        return {policy_label(option, invocation.plain["policy"], defaults): config.policy}
    idle = [word for word in invocation.overrides if word.lstrip("+~").startswith(("policy=", "policy."))]
    if idle:
        raise ValueError(f"audit.policies brings its own settings, so {idle[0]} sets nothing: leave it out")
    entries = [
        parse_entry(name)
        for text in texts
        for name in (policy_options(invocation.search_path) if text == EVERY_POLICY else [text])
    ]
    return listed_policies(entries, invocation.search_path, "audit.policies")


def _examined(config: AuditCommand, policies: Mapping[str, Policy]) -> list[Audit]:
    """The audits, one after another; what has been done is told on stderr where there are several."""
    from dspark.analysis.audit import Effort, exact_rule, examine
    from dspark.cli.console import stderr
    from dspark.config.build import build_verification

    settings, console = config.audit, stderr()
    rule = exact_rule(build_verification(config.verification))
    effort = Effort(
        num_random=settings.num_random,
        num_hunted=settings.num_hunted,
        num_probed=settings.num_probed,
        seed=settings.seed,
    )
    audits = []
    with tempfile.TemporaryDirectory() as folder:
        traced = _perturbation(config, Path(folder))
        for name, policy in policies.items():
            started_s = time.monotonic()
            audit = examine(
                name,
                policy,
                rule,
                case=settings.case,
                effort=effort,
                deterministic=settings.drafter == "deterministic",
                traced=traced,
            )
            audits.append(audit)
            if len(policies) > 1:
                verdict = "biased" if audit.is_biased else "exact"
                progress = f"{len(audits)} of {len(policies)}: {name}: {verdict}"
                console.print(f"{progress}, {time.monotonic() - started_s:.1f} s", markup=False)
    return audits


def _perturbation(config: AuditCommand, folder: Path) -> Callable[[Policy], TraceResult] | None:
    """The test on real steps, with its models loaded; None where it is no part of the case.

    The draft model of a synthetic target is a noisy copy; any other target drafts for itself.
    """
    settings = config.audit
    if settings.case not in ("all", "traces") or settings.trace_steps == 0:
        return None
    from dspark.analysis.audit import perturb, trace_cost
    from dspark.config import build
    from dspark.config.schema import SyntheticTarget
    from dspark.models.target import load_target

    target = config.target
    models = [build.target_folder(target)]
    if isinstance(target, SyntheticTarget):
        from dspark.models.synthetic import make_synthetic_target

        names = ("family", "num_layers", "hidden_size", "max_context", "seed")
        sizes = {name: getattr(target, name) for name in names}
        models.append(make_synthetic_target(folder / "drafter", noise=DRAFT_NOISE, **sizes))
    loading = {key: getattr(target, key) for key in ("dtype", "device", "attention", "cuda_graphs")}
    loaded = [load_target(path, **loading) for path in models]
    return partial(
        perturb,
        target=loaded[0],
        model=loaded[-1],
        cost=trace_cost(settings.seed),
        num_steps=settings.trace_steps,
        num_redraws=settings.trace_redraws,
        seed=settings.seed,
    )


def _write(invocation: Invocation, config: AuditCommand, audits: Sequence[Audit]) -> None:
    """``provenance.json``, ``summary.json`` with a row a policy, ``audit.json`` with every world."""
    import torch

    from dspark.cli.provenance import command_line, provenance
    from dspark.metrics.summary import SUMMARY_SCHEMA
    from dspark.metrics.trace import write_json

    path = invocation.run_dir
    path.mkdir(parents=True, exist_ok=True)
    device = torch.device("cpu")  # of toy worlds
    if any(audit.traces is not None for audit in audits):
        from dspark.models.target import resolve_device

        device = resolve_device(config.target.device)
    origin = provenance(invocation, device=device, num_threads=torch.get_num_threads())
    write_json(path / "provenance.json", {"schema": 1, **origin})
    told = {"command": command_line(invocation), "complete": True}
    write_json(
        path / "summary.json", {"schema": SUMMARY_SCHEMA, **told, "rows": [a.record() for a in audits]}
    )
    write_json(path / "audit.json", {"schema": SCHEMA, **told, "audits": [_details(a) for a in audits]})


def _details(audit: Audit) -> dict[str, Any]:
    """The audit with every world and every flip, as plain values; probabilities as fractions and numbers."""
    worlds = [
        {
            "world": world.world,
            "drafter": "token by token" if world.autoregressive else "block",
            "rows": len(world.law),
            "horizon": world.horizon,
            "bias": float(world.bias),
            "bias_exact": str(world.bias),
            "token": world.token,
            "law": [[float(mass) for mass in law] for law in world.law],
            "law_exact": [[str(mass) for mass in law] for law in world.law],
            "target": [[float(mass) for mass in law] for law in world.target],
            "target_exact": [[str(mass) for mass in law] for law in world.target],
            "counterexample": world.words,
        }
        for world in audit.worlds
    ]
    flips = [] if audit.traces is None else [asdict(flip) for flip in audit.traces.flips]
    return {**audit.record(), "worlds": worlds, "trace_flips": flips}


def _show(invocation: Invocation, config: AuditCommand, audits: Sequence[Audit]) -> None:
    """One policy with its worlds, or a table of all; then what is biased, in words."""
    from dspark.analysis.audit import lines, worlds_table
    from dspark.cli.console import stdout

    console = stdout()
    if config.audit.policies is not None:
        _print_table(audits)
        shown = [audit for audit in audits if audit.is_biased]
    else:
        shown = audits
        if audits[0].worlds:
            console.print(worlds_table(audits[0]))
    for audit in shown:
        for line in lines(audit):
            console.print(line, markup=False, soft_wrap=True)
    path = invocation.run_dir
    console.print(f"details: {path / 'audit.json'}\nsummary: {path / 'summary.json'}", soft_wrap=True)


def _print_table(audits: Sequence[Audit]) -> None:
    from dspark.analysis.audit import policies_table
    from dspark.cli.console import stdout

    stdout().print(policies_table(audits))
