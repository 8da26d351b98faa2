"""`dspark roofline`: a model's times on a machine from FLOPs and bytes; no weights, nothing is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dspark.cli.launch import Invocation, fail, launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dspark.analysis.roofline import Row
    from dspark.config.roofline import RooflineCommand
    from dspark.cost.roofline import Roofline

SCHEMA = 1
"""The version of ``roofline.json``."""


def command(arguments: Sequence[str]) -> int:
    """The exit code of `dspark roofline ARGUMENTS`.

    ``target=NAME`` is a name here, where other commands have a group of options: models are told by
    their sizes.
    """
    names = [word.removeprefix("target=") for word in arguments if word.startswith("target=")]
    has_source = any(word.startswith("target.source=") for word in arguments)
    if has_source and any(name != "pretrained" for name in names):
        return fail(f"target={names[-1]} and target.source=... are two targets: leave one out")
    if "pretrained" in names and not has_source:
        return fail("target=pretrained needs target.source=DIR, a local folder with a config.json")
    renamed = [
        f"target.name={word.removeprefix('target=')}" if word.startswith("target=") else word
        for word in arguments
        if word != "target=pretrained"
    ]
    return launch("roofline", renamed, _job)


def _job(invocation: Invocation) -> int:
    # these import torch, which commands that only explain themselves must not wait for
    from dspark.analysis.roofline import modelled_batches, modelled_cells
    from dspark.config.roofline import parse_roofline

    config = parse_roofline(invocation.plain)
    roofline = _roofline(config)
    cells = modelled_cells(
        roofline,
        batch_sizes=config.batch_sizes,
        depths=config.depths,
        context=config.context,
        acceptance=config.acceptance,
    )
    batches = modelled_batches(roofline, cells)
    _write(invocation, config, roofline, cells, batches)
    _show(invocation, config, roofline, cells, batches)
    return 0


def _roofline(config: RooflineCommand) -> Roofline:
    """The cost model that the settings describe.

    Raises:
        ValueError: a name that is not known, a folder that is no model, or a number out of range.
    """
    from dspark.config.build import named
    from dspark.cost.hardware import device_of
    from dspark.cost.named_shapes import named_shape
    from dspark.cost.roofline import Roofline
    from dspark.cost.shape_from_config import load_shape, shape_of

    source = config.target.source
    if source is None:
        target = named("target", named_shape, config.target.name)
    else:
        target = named("target.source", load_shape, source.expanduser())
    return Roofline(
        target=target,
        device=named("hardware", device_of, config.hardware),
        dtype=config.dtype,
        kv_dtype=config.kv_dtype or config.dtype,
        draft=None if config.draft is None else named("draft", shape_of, config.draft),
        num_devices=config.num_devices,
        mfu=config.mfu,
        mbu=config.mbu,
        overhead_s=config.overhead_s,
    )


def _write(
    invocation: Invocation,
    config: RooflineCommand,
    roofline: Roofline,
    cells: Sequence[Row],
    batches: Sequence[Row],
) -> None:
    """``provenance.json``, ``summary.json`` with a row a batch size, ``roofline.json`` with every cell."""
    import torch

    from dspark.analysis.roofline import modelled_memory
    from dspark.cli.provenance import command_line, provenance
    from dspark.cost.hardware import device_to_json
    from dspark.metrics.summary import SUMMARY_SCHEMA
    from dspark.metrics.trace import write_json

    path = invocation.run_dir
    path.mkdir(parents=True, exist_ok=True)
    origin = provenance(invocation, device=torch.device("cpu"), num_threads=torch.get_num_threads())
    write_json(path / "provenance.json", {"schema": 1, **origin})
    shown = {"target": roofline.target.name, "hardware": roofline.device.name, "dtype": roofline.dtype}
    told = {"command": command_line(invocation), "complete": True}
    rows = [{**shown, **batch} for batch in batches]
    write_json(path / "summary.json", {"schema": SUMMARY_SCHEMA, **told, "rows": rows})
    details: dict[str, Any] = {
        "target": _shape(roofline),
        "draft": None if roofline.draft is None else roofline.draft.name,
        "hardware": device_to_json(roofline.device),
        "dtype": roofline.dtype,
        "kv_dtype": roofline.kv_dtype,
        "num_devices": roofline.num_devices,
        "acceptance": config.acceptance,
        "ridge_flops_per_byte": roofline.ridge,
        **modelled_memory(roofline, config.context),
    }
    results = {"batches": list(batches), "cells": list(cells)}
    write_json(path / "roofline.json", {"schema": SCHEMA, **told, **details, **results})


def _shape(roofline: Roofline) -> dict[str, Any]:
    """The target's sizes, as plain values."""
    from dspark.cost.hardware import BYTES_PER_VALUE

    shape = roofline.target
    return {
        "name": shape.name,
        "source": shape.source,
        "num_layers": shape.num_layers,
        "hidden": shape.hidden,
        "vocab": shape.vocab,
        "num_parameters": shape.num_parameters,
        "active_parameters": shape.active_parameters,
        "kv_bytes_per_token": shape.kv_bytes_per_token(BYTES_PER_VALUE[roofline.kv_dtype]),
    }


def _show(
    invocation: Invocation,
    config: RooflineCommand,
    roofline: Roofline,
    cells: Sequence[Row],
    batches: Sequence[Row],
) -> None:
    """Figure, tables, and what to know beside them."""
    from dspark.analysis.roofline import memory_note, model_table, rate_table, step_table
    from dspark.analysis.roofline_figure import draw_roofline
    from dspark.cli.console import stdout

    path = invocation.run_dir
    machine = f"{roofline.num_devices} × " * (roofline.num_devices > 1) + roofline.device.name
    what = f"{roofline.target.name} on {machine}, {roofline.dtype}, context {config.context}"
    figure = draw_roofline(roofline, cells, path / "figures" / "roofline.png", title=f"{what}: modelled")
    console = stdout()
    console.print(model_table(roofline, batches, config.context))
    console.print(step_table(cells, batches))
    console.print(rate_table(cells, batches, config.acceptance))
    note = memory_note(roofline, config.batch_sizes, config.context)
    if note is not None:
        console.print(note, markup=False, soft_wrap=True)
    console.print(
        f"sizes: {roofline.target.source}\nmachine: {roofline.device.source}", markup=False, soft_wrap=True
    )
    console.print(f"figure: {figure}\ndetails: {path / 'roofline.json'}", soft_wrap=True)
