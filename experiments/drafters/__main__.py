"""``python -m experiments.drafters``: acceptance of drafters by position, on prompts held out of training.

Every drafter continues the same prompts with the same fixed depth, so acceptance is all that differs.
Measurements that are there already are not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from dspark.cli import console as consoles
from experiments.drafters.cells import HELD_OUT, Cell, Contender, measured
from experiments.drafters.chart import draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

DEFAULT = ("ngram=ngram", "dspark=block")
KEPT = (
    "acceptance_length",
    "tokens_a_round",
    "drafted_share",
    "acceptance_rate",
    "conditional_at",
    "survival_at",
    "output_tokens",
    "num_requests",
)


def main(argv: Sequence[str] | None = None) -> int:
    """0, or 2 for bad input."""
    try:
        run(_parser().parse_args(argv), consoles.stdout())
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def run(options: argparse.Namespace, console: Console) -> None:
    """Measure, tell, draw.

    Raises:
        ValueError: a drafter that is not one, a file that is missing, or a run that was refused.
    """
    contenders = [Contender.parsed(text) for text in options.drafter or DEFAULT]
    sets = [each for each in HELD_OUT if options.prompts is None or each.name in options.prompts]
    for each in sets:
        if not (options.data / each.file).is_file():
            raise ValueError(
                f"{options.data} has no {each.file}: give --data, a folder of DeepSpec's eval_datasets"
            )
    rows: list[dict[str, Any]] = []
    for held_out in sets:
        for temperature in options.temperature:
            for contender in contenders:
                cell = Cell(contender=contender, held_out=held_out, temperature=temperature)
                row = measured(
                    cell, data=options.data, out=options.out, depth=options.depth, extra=options.settings
                )
                rows.append(
                    {
                        "drafter": contender.name,
                        "prompts": held_out.name,
                        "temperature": temperature,
                        **{name: row[name] for name in KEPT},
                    }
                )
                console.print(_line(rows[-1]), markup=False)
    options.out.mkdir(parents=True, exist_ok=True)
    content = {"depth": options.depth, "settings": options.settings, "rows": rows}
    (options.out / "drafters.json").write_text(json.dumps(content, indent=1) + "\n")
    console.print(_table(rows, [contender.name for contender in contenders], options.depth))
    figure = draw(rows, options.out / "drafters.png", depth=options.depth)
    console.print(f"figure: {figure}", markup=False, soft_wrap=True)


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['prompts']}, temperature {row['temperature']:g}, {row['drafter']}: "
        f"acceptance length {row['acceptance_length']:.3f}, over all rounds {row['tokens_a_round']:.3f}; "
        f"{row['drafted_share']:.0%} drafted"
    )


def _table(rows: Sequence[dict[str, Any]], names: Sequence[str], depth: int) -> Table:
    table = Table(
        title=f"tokens a round over all rounds (acceptance length of those that drafted), depth {depth}"
    )
    for name in ("prompts", "temperature", *names):
        table.add_column(name, justify="left" if name == "prompts" else "right")
    found = {(row["prompts"], row["temperature"], row["drafter"]): row for row in rows}
    for prompts, temperature in dict.fromkeys((row["prompts"], row["temperature"]) for row in rows):
        own = [found[prompts, temperature, name] for name in names]
        lengths = [f"{row['tokens_a_round']:.2f} ({row['acceptance_length']:.2f})" for row in own]
        table.add_row(prompts, f"{temperature:g}", *lengths)
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments.drafters", description=__doc__)
    add = parser.add_argument
    add("--data", type=Path, required=True, help="folder of DeepSpec's eval_datasets (gsm8k.jsonl, ...)")
    add("--out", type=Path, default=Path("outputs/drafters"), help="runs, drafters.json, drafters.png")
    add("--drafter", action="append", metavar="NAME=KIND[:SOURCE]", help=f"default: {' '.join(DEFAULT)}")
    add("--prompts", nargs="+", choices=[each.name for each in HELD_OUT], help="default: all")
    add("--temperature", type=float, nargs="+", default=[0.0, 1.0])
    add("--depth", type=int, default=7, help="tokens of every draft")
    add(
        "settings",
        nargs="*",
        help="of `dspark run`, such as workload.num_requests=64 engine.max_batch_size=16",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
