"""Linear layers of a torch module through the CPU kernels' product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from dspark.models.native.binding import Kernels

MAX_ROWS = 24
"""Up to this many rows the kernels' product is the faster one. Milliseconds of a [3072, 576] product with
weights from memory, kernels / torch's best, one thread: 0.43/0.42 at 3 rows, 0.46/1.2 at 7, 0.63/1.2 at
14, 1.3/1.3 at 28."""


class NativeLinear(nn.Module):
    """A float32 linear layer on the CPU; shares the weights it is given."""

    def __init__(self, linear: nn.Linear, kernels: Kernels) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self._kernels = kernels

    def forward(self, x: Tensor) -> Tensor:
        """``x @ W.T + b`` for x [..., in_features]."""
        rows = x.numel() // self.in_features
        if rows > MAX_ROWS:
            return F.linear(x, self.weight, self.bias)
        out = self._kernels.linear(x.reshape(rows, self.in_features).contiguous(), self.weight, self.bias)
        return out.view(*x.shape[:-1], self.out_features)

    def shares(self, x: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
        """The output split along its last axis, each share [..., size]."""
        return self(x).split(sizes, -1)


def install_native_linears(model: nn.Module, kernels: Kernels) -> None:
    """Replace every plain ``nn.Linear`` of ``model`` by a :class:`NativeLinear` on the same weights."""
    for parent in model.modules():
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, NativeLinear(child, kernels))
