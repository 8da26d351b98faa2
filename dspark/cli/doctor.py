"""`dspark doctor`: is this machine ready, and what to do if not? Loads no model and uses no network."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from dspark.cli.exit_codes import fail
from dspark.cli.plain import PlainParser, plain_command

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from dspark.cli.doctor_checks import Finding
    from dspark.cli.doctor_facts import Facts

EXIT_PROBLEM = 1
SCHEMA = 1
"""The version of what ``--json`` prints."""
_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


def command(arguments: Sequence[str]) -> int:
    """The exit code of `dspark doctor ARGUMENTS`: 0 nothing is a problem, 1 something is."""
    parser = PlainParser(
        "doctor",
        description="dspark doctor: packages, threads, load, memory, device, kernels, model; and what to do.",
        examples="  dspark doctor\n  dspark doctor --json     for a bug report, or a script",
    )
    parser.add_argument("--json", action="store_true", help="findings and facts as JSON")
    return plain_command(parser, arguments, _examine)


def _examine(options: argparse.Namespace) -> int:
    try:
        # these need packages whose absence is what a doctor is called for
        from dspark.cli.doctor_checks import CHECKS
        from dspark.cli.doctor_facts import gather

        facts = gather()
    except ModuleNotFoundError as error:
        return fail(f"the package {error.name} is not installed: run `make setup`, or pip install -e .")
    findings = [check(facts) for check in CHECKS]
    num_problems = sum(finding.level == "problem" for finding in findings)
    if options.json:
        told = [asdict(finding) for finding in findings]
        whole = {"schema": SCHEMA, "num_problems": num_problems, "checks": told, "facts": asdict(facts)}
        print(json.dumps(whole, indent=2))
    else:
        _show(findings, facts)
    return EXIT_PROBLEM if num_problems else 0


def _show(findings: Sequence[Finding], facts: Facts) -> None:
    """The table, and one line about it."""
    from rich.markup import escape
    from rich.table import Table

    import dspark
    from dspark.cli.console import stdout

    table = Table(title=f"dspark {dspark.__version__}, Python {facts.python}", title_justify="left")
    for heading in ("check", "", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        style = _STYLES[finding.level]
        level = f"[{style}]{finding.level}[/{style}]"
        table.add_row(finding.check, level, escape(finding.found), escape(finding.advice))
    console = stdout()
    console.print(table)
    counts = {level: sum(finding.level == level for finding in findings) for level in ("problem", "note")}
    if counts["problem"]:
        console.print(f"problems: {counts['problem']}; do what the last column says, then run this again")
    else:
        ending = f" ({counts['note']} notes)" if counts["note"] else ""
        console.print(f"ready{ending}: dspark compare", markup=False)
