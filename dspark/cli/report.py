"""`dspark report`: the results of many runs in one table, one CSV, one Parquet file and one figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dspark.cli.plain import PlainParser, plain_command

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    import pandas as pd
    from rich.console import Console

    from dspark.analysis.collected_report import Line


def command(arguments: Sequence[str]) -> int:
    """The exit code of `dspark report ARGUMENTS`."""
    parser = PlainParser(
        "report",
        description="dspark report: summary rows of many runs, with the settings in which the runs differ.",
        examples="  dspark report outputs/run-sweep/2026-01-31/12-00-00\n"
        "  dspark report outputs --sort decode_tokens_per_s\n"
        "  dspark report sweep --x policy.threshold --out results",
    )
    parser.add_argument(
        "folders", nargs="+", type=Path, metavar="DIR", help="runs, sweeps, or folders of them"
    )
    parser.add_argument("--out", type=Path, help="where report.csv, report.parquet and figures go; else DIR")
    parser.add_argument("--sort", metavar="COLUMN", help="largest first; else by settings")
    parser.add_argument("--x", metavar="NUMBER", help="what figures are drawn against; else the batch size")
    return plain_command(parser, arguments, _report)


def _report(options: argparse.Namespace) -> int:
    # pandas takes a while, which --help must not wait for
    from dspark.analysis.collected import differing, frame_of, lines_of, num_overlapping, read_runs
    from dspark.analysis.collected_report import groups, ordered, table_of
    from dspark.cli.console import stdout

    runs = read_runs(options.folders)
    settings = differing(runs)
    lines = ordered(lines_of(runs), settings, options.sort)
    out: Path = options.out or options.folders[0]
    out.mkdir(parents=True, exist_ok=True)
    frame = frame_of(lines)
    frame.to_csv(out / "report.csv", index=False)
    _of_one_kind(frame).to_parquet(out / "report.parquet", index=False)
    console = stdout()
    for group in groups(lines):
        if group[0]["clock"] is None:
            _say_what_is_missing(console, group, settings)
        else:
            console.print(table_of(group, settings))
            _draw(console, group, settings, out, options.x)
    if num := num_overlapping(runs):
        console.print(
            f"{num} runs began while another was measured: on one machine they slowed each other down",
            soft_wrap=True,
        )
    console.print(f"frame: {out / 'report.csv'}, {out / 'report.parquet'}", markup=False, soft_wrap=True)
    return 0


def _say_what_is_missing(console: Console, lines: Sequence[Line], settings: Sequence[str]) -> None:
    """The runs that wrote no row, and what to do about them."""
    for line in lines:
        shown = ", ".join(f"{key}={line[key]}" for key in settings)
        console.print(f"{line['run']}: no results{shown and f' ({shown})'}", markup=False, soft_wrap=True)
    console.print(
        "nothing has finished in these: a stopped run goes on with its hydra.run.dir and resume=true, and a "
        "refused one says why when its command runs alone",
        soft_wrap=True,
    )


def _draw(console: Console, lines: Sequence[Line], settings: Sequence[str], out: Path, x: str | None) -> None:
    """The group's figure, where there are speeds to draw against a number."""
    from dspark.analysis.collected_report import draw, has_speeds, swept_number

    if not has_speeds(lines):
        return
    axis = x or swept_number(lines, settings)
    if axis is None:
        console.print(
            "no figure: the rows differ in no batch size and not in one number alone; give --x NUMBER"
        )
        return
    suffix = "_modelled" if lines[0]["clock"] == "modelled" else ""
    path = out / "figures" / f"report_{lines[0]['command']}{suffix}.png"
    console.print(f"figure: {draw(lines, settings, path, axis)}", markup=False, soft_wrap=True)


def _of_one_kind(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns that mix kinds of values as text, since a Parquet column has one kind."""
    objects = [name for name in frame if frame[name].dtype.kind == "O"]
    return frame.astype(dict.fromkeys(objects, "string"))
