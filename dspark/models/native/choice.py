"""Whether a target's passes go through the CPU kernels."""

from __future__ import annotations

import logging
from typing import Any, Literal

from dspark.models.native.compile import NoCompilerError
from dspark.models.native.decoder import NativeDecoder

KernelKind = Literal["auto", "native", "torch"]

_log = logging.getLogger(__name__)


def choose_kernels(kind: KernelKind, model: Any) -> NativeDecoder | None:
    """The model as the CPU kernels run it, or None where torch's operations do.

    Args:
        kind: ``auto``: the kernels where they know the model and a compiler is there. ``native``: the
            kernels, or an error. ``torch``: never the kernels.
        model: a causal model.

    Raises:
        ValueError: ``native`` is asked for and cannot be.
    """
    if kind == "torch":
        return None
    try:
        return NativeDecoder(model)
    except (ValueError, NoCompilerError) as error:
        if kind == "native":
            raise ValueError(f"kernels=native cannot be: {error}; use kernels=torch or auto") from error
        if isinstance(error, NoCompilerError):  # worth knowing: it costs half the speed
            _log.warning("%s; passes run through torch's operations, which takes about twice as long", error)
        return None


def kernels_beside(kind: KernelKind, *, attention: str, cuda_graphs: bool | None) -> KernelKind:
    """``torch`` where an attention backend or graphs are asked for by name: the kernels bring their own.

    Raises:
        ValueError: ``native`` is asked for beside one of them.
    """
    if attention == "auto" and not cuda_graphs:
        return kind
    if kind == "native":
        asked = f"attention={attention}" if attention != "auto" else "cuda_graphs=true"
        raise ValueError(f"kernels=native has an attention of its own, got {asked}; leave one of them out")
    return "torch"
