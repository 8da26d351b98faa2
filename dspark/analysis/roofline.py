"""What a roofline says of batch sizes and depths: rows of numbers, and the tables that show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table
from rich.text import Text

from dspark.cost.feed_forward import Experts, tokens_for_coverage
from dspark.cost.hardware import BYTES_PER_VALUE
from dspark.cost.pass_size import PassSize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dspark.cost.roofline import Roofline

Row = dict[str, Any]


def modelled_cells(
    roofline: Roofline, *, batch_sizes: Sequence[int], depths: Sequence[int], context: int, acceptance: float
) -> list[Row]:
    """A row for every batch size and depth; every time and rate in it is modelled, and named so.

    Tokens of a step are ``(1 - a^(d+1)) / (1 - a)`` a row: drafted tokens are accepted with
    probability a each, up to the first that is not, and one more is the target's own (Leviathan et
    al., arXiv 2211.17192, equation 1).

    Args:
        roofline: the cost model.
        batch_sizes: decode rows of a step.
        depths: tokens drafted and verified for each row.
        context: cached tokens of each row.
        acceptance: a.
    """
    grid = torch.meshgrid(torch.tensor(batch_sizes), torch.tensor(depths), indexing="ij")
    batch, depth = (axis.flatten() for axis in grid)
    tokens, cached = batch * (1 + depth), batch * context
    cost = roofline.pass_cost(PassSize.of(rows=batch, tokens=tokens, context_tokens=cached))
    times = roofline.step_time_s(decode_rows=batch, tokens=tokens, context_tokens=cached, draft_tokens=depth)
    per_row = [sum(acceptance**k for k in range(d + 1)) for d in depth.tolist()]
    emitted = batch * torch.tensor(per_row, dtype=torch.float64)
    columns = {
        "batch_size": batch,
        "depth": depth,
        "context": torch.full_like(batch, context),
        "pass_tokens": tokens,
        "modelled_pass_flops": cost.flops,
        "modelled_pass_bytes": cost.bytes,
        "modelled_flops_per_byte": cost.intensity,
        "modelled_flops_per_s": cost.flops / times.target_s,
        "modelled_target_s": times.target_s,
        "modelled_draft_s": times.draft_s,
        "modelled_step_s": times.total_s,
        "modelled_tokens_per_step": emitted,
        "modelled_tokens_per_s": emitted / times.total_s,
    }
    lists = {name: column.tolist() for name, column in columns.items()}
    is_memory = (cost.memory_s >= cost.compute_s).tolist()
    lists["modelled_bound"] = ["memory" if bound else "compute" for bound in is_memory]
    return [{name: values[i] for name, values in lists.items()} for i in range(batch.numel())]


def modelled_batches(roofline: Roofline, cells: Sequence[Row]) -> list[Row]:
    """A row a batch size: the optimal tokens of a pass, and the best of its depths.

    ``modelled_memory_bound_depth`` is the deepest draft at which the pass stays memory bound, None
    where plain decoding already is compute bound. Such a draft is free to verify on a dense model; where
    there are experts, its tokens may call for some that no other token uses.
    """
    rows = []
    for batch in dict.fromkeys(cell["batch_size"] for cell in cells):
        own = [cell for cell in cells if cell["batch_size"] == batch]
        best = max(own, key=lambda cell: cell["modelled_tokens_per_s"])
        optimal = roofline.knee_tokens(rows=batch, context=best["context"])
        rows.append(
            {
                "batch_size": batch,
                "context": best["context"],
                "modelled_optimal_pass_tokens": optimal,
                "modelled_memory_bound_depth": optimal // batch - 1 if optimal >= batch else None,
                "modelled_best_depth": best["depth"],
                "modelled_tokens_per_s": best["modelled_tokens_per_s"],
            }
        )
    return rows


def modelled_memory(roofline: Roofline, context: int) -> Row:
    """Bytes of weights, of a row, and of memory, and the rows that fit; negative where the weights do not."""
    weights = roofline.target.num_parameters * BYTES_PER_VALUE[roofline.dtype]
    row = roofline.target.held_bytes(context, BYTES_PER_VALUE[roofline.kv_dtype])
    memory = roofline.num_devices * roofline.device.memory_bytes
    return {
        "weight_bytes": weights,
        "row_bytes": row,
        "memory_bytes": memory,
        "rows_that_fit": int((memory - weights) // row) if row > 0 else None,
    }


def rate(value: float, unit: str) -> str:
    """The value in tera or giga of the unit, whichever gives the shorter number."""
    return f"{value / 1e12:.4g} T{unit}" if value >= 1e12 else f"{value / 1e9:.4g} G{unit}"


def model_table(roofline: Roofline, batches: Sequence[Row], context: int) -> Table:
    """What is modelled, in a line a fact."""
    shape, device = roofline.target, roofline.device
    memory = modelled_memory(roofline, context)
    per_token = shape.kv_bytes_per_token(BYTES_PER_VALUE[roofline.kv_dtype])
    one = shape.weight_bytes(torch.tensor(1.0, dtype=torch.float64), BYTES_PER_VALUE[roofline.dtype]).item()
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row(
        "model",
        f"{shape.name}: {shape.num_layers} layers, hidden {shape.hidden}, {shape.num_parameters / 1e9:.2f} G "
        f"parameters, {shape.active_parameters / 1e9:.2f} G multiplied a token",
    )
    devices = f"{roofline.num_devices} × " if roofline.num_devices > 1 else ""
    table.add_row(
        "machine",
        f"{devices}{device.name}: {rate(device.peak(roofline.dtype), 'FLOP/s')} {roofline.dtype}, "
        f"{rate(device.memory_bandwidth, 'B/s')}, {device.memory_bytes / 1e9:.4g} GB",
    )
    table.add_row(
        "weights", f"{memory['weight_bytes'] / 1e9:.2f} GB; a pass of one token reads {one / 1e9:.2f} GB"
    )
    table.add_row(
        "cache",
        f"{per_token / 1e3:.4g} kB a token, {memory['row_bytes'] / 1e6:.4g} MB a row at context {context}",
    )
    mixtures = {group.feed_forward for group in shape.groups if isinstance(group.feed_forward, Experts)}
    for experts in mixtures:
        count, used = experts.num_experts, experts.experts_per_token
        most = tokens_for_coverage(count, used)
        table.add_row("experts", f"{used} of {count} a token; a pass of {most} tokens reads 95 % of them")
    table.add_row("ridge", f"{roofline.ridge:.1f} FLOP a byte")
    first = batches[0]
    table.add_row(
        "optimal pass",
        f"{first['modelled_optimal_pass_tokens']} tokens at batch {first['batch_size']}, context {context}"
        + (" (with experts, fewer are not free)" if mixtures else ""),
    )
    return table


def memory_note(roofline: Roofline, batch_sizes: Sequence[int], context: int) -> str | None:
    """What does not fit into the memory, or None."""
    memory = modelled_memory(roofline, context)
    fit, largest = memory["rows_that_fit"], max(batch_sizes)
    has = f"the memory is {memory['memory_bytes'] / 1e9:.4g} GB; modelled all the same (see num_devices)"
    if memory["weight_bytes"] > memory["memory_bytes"]:
        return f"the weights do not fit: they take {memory['weight_bytes'] / 1e9:.1f} GB, and {has}"
    if fit is not None and fit < largest:
        return f"not all batches fit: beside the weights there is room for {fit} rows of this context; {has}"
    return None


def step_table(cells: Sequence[Row], batches: Sequence[Row]) -> Table:
    """Modelled milliseconds of a step, a row a batch size, a column a depth; past the knee in italics."""
    table = Table(title="modelled_step_ms by batch size and depth (italic: compute bound)")
    table.add_column("batch", justify="right")
    table.add_column("modelled_optimal\n_pass_tokens", justify="right")
    table.add_column("modelled_memory\n_bound_depth", justify="right")
    for depth in dict.fromkeys(cell["depth"] for cell in cells):
        table.add_column(f"d={depth}", justify="right")
    for batch in batches:
        free = batch["modelled_memory_bound_depth"]
        texts = [
            Text(
                f"{cell['modelled_step_s'] * 1e3:#.4g}".rstrip("."),
                style="italic" if cell["modelled_bound"] == "compute" else "",
            )
            for cell in _of(cells, batch)
        ]
        table.add_row(
            str(batch["batch_size"]),
            str(batch["modelled_optimal_pass_tokens"]),
            "-" if free is None else str(free),
            *texts,
        )
    return table


def rate_table(cells: Sequence[Row], batches: Sequence[Row], acceptance: float) -> Table:
    """Modelled tokens a second, a row a batch size, a column a depth; the best of a row in bold."""
    table = Table(
        title=f"modelled_tokens_per_s by batch size and depth, acceptance {acceptance:g} (bold: best)"
    )
    table.add_column("batch", justify="right")
    table.add_column("modelled_best\n_depth", justify="right")
    for depth in dict.fromkeys(cell["depth"] for cell in cells):
        table.add_column(f"d={depth}", justify="right")
    for batch in batches:
        texts = [
            Text(
                f"{cell['modelled_tokens_per_s']:.0f}",
                style="bold" if cell["depth"] == batch["modelled_best_depth"] else "",
            )
            for cell in _of(cells, batch)
        ]
        table.add_row(str(batch["batch_size"]), str(batch["modelled_best_depth"]), *texts)
    return table


def _of(cells: Sequence[Row], batch: Mapping[str, Any]) -> list[Row]:
    return [cell for cell in cells if cell["batch_size"] == batch["batch_size"]]
