"""A make-believe device, so that a CPU shows what would fail or wait on a real one.

Inside ``FarDevice()`` a tensor of class :class:`Far` is on "cuda": it says so, factories asked for
that device make such tensors, and results of operations on them are such tensors. As on a real
device, an operation that mixes it with the host is an error (a host index and the copy into a
slice are not), and whatever needs a value on the host is a wait, which is counted.
"""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("cuda")
HOST = torch.device("cpu")
_WAITS = {"tolist", "item", "__bool__", "__int__", "__float__", "__index__", "nonzero", "numpy"}
_FREE_TO_MIX = {"copy_", "__get__"}
_DEVICE_OF = torch.Tensor.device.__get__


class Far(torch.Tensor):
    """A tensor on the make-believe device."""


def _is_far(x) -> bool:
    return isinstance(x, Far)


def _is_near(x) -> bool:
    """On the host, and not a number, which every device takes."""
    return isinstance(x, torch.Tensor) and not isinstance(x, Far) and x.dim() > 0


class FarDevice(TorchFunctionMode):
    """Counts in ``num_waits`` how often the host would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.num_waits = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        with torch._C.DisableTorchFunctionSubclass():
            return self._call(func, args, kwargs)

    def _call(self, func, args, kwargs):
        name = getattr(func, "__name__", "")
        if func == _DEVICE_OF:
            return DEVICE if _is_far(args[0]) else func(*args)
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        far = any(map(_is_far, tensors))
        wanted = kwargs.get("device")
        if name == "to" and len(args) > 1 and isinstance(args[1], torch.device):
            wanted, args = args[1], (args[0], HOST, *args[2:])
        if name == "cpu":
            wanted = HOST
        if wanted == DEVICE:
            kwargs = {**kwargs, "device": HOST} if "device" in kwargs else kwargs
        if far:
            self._check(name, args, tensors)
            masks = name == "__getitem__" and any(
                x.dtype == torch.bool for x in tree_leaves(args[1:]) if _is_far(x)
            )
            self.num_waits += name in _WAITS or masks or wanted == HOST
        result = func(*tree_map(_plain, args), **tree_map(_plain, kwargs))
        result_is_far = wanted == DEVICE if wanted is not None else far
        return _distant(result) if result_is_far else result

    @staticmethod
    def _check(name, args, tensors) -> None:
        """Raise AssertionError where a real device would refuse the mixture."""
        if name in _FREE_TO_MIX:
            return
        if name in ("__getitem__", "__setitem__"):
            index = [x for x in tree_leaves(args[1]) if isinstance(x, torch.Tensor)]
            bad = not _is_far(args[0]) and any(map(_is_far, index))
            if name == "__setitem__" and index:  # a slice would be a copy
                bad |= _is_near(args[2]) if _is_far(args[0]) else _is_far(args[2])
        else:
            bad = any(map(_is_near, tensors))
        assert not bad, f"{name} mixes tensors of two devices"


def _plain(x):
    return x.as_subclass(torch.Tensor) if _is_far(x) else x


def _distant(x):
    if isinstance(x, torch.Tensor):
        return x.as_subclass(Far)
    if isinstance(x, tuple | list) and any(isinstance(item, torch.Tensor) for item in x):
        return type(x)([_distant(item) for item in x])  # named results (topk) are made from a list too
    return x


def move_logits(model) -> None:
    """Let a target's logits be far: everything that is computed from them then is."""
    near = model.forward

    def forward(rows, cache):
        return near(rows, cache).as_subclass(Far)

    model.forward = forward
