"""What the table needs of a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.e12_table1.cells import SETS, chosen
from experiments.reproduce import Need, Setting

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.reproduce import Context

DATA = "eval_data"
CELLS = Setting(
    name="table1_cells",
    what="cells of DSpark's table 1 to run: TARGET/DRAFTER/SET with * for any, several by commas",
    default="*/*/*",
)
HUB_TIMEOUT_S = 10


def data_folder(context: Context) -> Path:
    """Where the sets are."""
    folder = context.path(DATA)
    assert folder is not None, "it has a default"
    return folder


def _no_gpu(context: Context) -> str | None:
    import torch

    if context.quick or torch.cuda.is_available():
        return None
    return (
        "torch sees no CUDA device here: run it on one that holds targets in bfloat16 (28 GB of weights for "
        f"the largest; {CELLS.name}='Qwen3-4B/*/*' chooses the smallest) with their drafters and caches"
    )


def _no_data(context: Context) -> str | None:
    if context.quick or any((data_folder(context) / each.file).is_file() for each in SETS.values()):
        return None
    return (
        f"no gsm8k.jsonl or the like in {data_folder(context)}: get eval_datasets of "
        f"github.com/deepseek-ai/DeepSpec and give {DATA}=DIR"
    )


def _no_checkpoints(context: Context) -> str | None:
    """Asks for the smallest file of each; it is kept, as the weights will be."""
    if context.quick:
        return None
    from huggingface_hub import hf_hub_download

    wanted = chosen(context.settings[CELLS.name] or "")
    for hub_id in dict.fromkeys(each for cell in wanted for each in (cell.target_id, cell.drafter_id)):
        try:
            hf_hub_download(hub_id, "config.json", etag_timeout=HUB_TIMEOUT_S)
        except Exception as error:  # the client lets errors of its transport through, whichever that is
            reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
            return f"{hub_id} cannot be had from the hub: {reason}; fetch it where there is a network"
    return None


NEEDS = (
    Need(what="a CUDA device", missing=_no_gpu),
    Need(what="DeepSpec's evaluation files", missing=_no_data),
    Need(what="targets and drafters from the hub", missing=_no_checkpoints),
)
