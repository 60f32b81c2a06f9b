"""Linear layers whose weights are made empty and filled once by the weight loader."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# oneDNN picks another kernel, so another order of additions, below 4 rows. Filled up to 4, a token's numbers did not
# depend on how many tokens were computed beside it (measured on AVX512), and the extra rows cost nothing measurable.
LEAST_ROWS = 4


class Linear(nn.Module):
    """``y = x W^T + b`` with ``W`` of shape ``[out_features, in_features]``."""

    def __init__(self, in_features: int, out_features: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(out_features), requires_grad=False) if bias else None
        self.packed: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """``[tokens, in_features] -> [tokens, out_features]``."""
        if self.packed is None:
            return F.linear(x, self.weight, self.bias)
        rows = x.shape[0]
        if rows < LEAST_ROWS:
            x = F.pad(x, (0, 0, 0, LEAST_ROWS - rows))
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")[:rows]

    def pack(self) -> None:
        """Lay the weight out as oneDNN's kernels read it, and drop the plain one (unless an embedding shares it).

        On a CPU this computes a decode batch's few rows two to three times as fast as ``F.linear``. The operators are
        private ones of torch; :func:`can_pack` asks first.
        """
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, None)
        self.weight = nn.Parameter(self.weight.new_empty(0), requires_grad=False)


def can_pack(device: str | torch.device, dtype: torch.dtype) -> bool:
    """Whether :meth:`Linear.pack` works, and works right, for this device and dtype in this build of torch."""
    if torch.device(device).type != "cpu":
        return False
    probe = Linear(2, 3).to(dtype)
    probe.weight.copy_(torch.arange(6).view(3, 2))
    x = torch.tensor([[1, 2]], dtype=dtype)
    plain = probe(x)
    try:
        probe.pack()
        return torch.equal(probe(x), plain)
    except (AttributeError, RuntimeError):
        return False


class FusedLinear(Linear):
    """Several linear layers over one input, computed as one product: q, k and v, or gate and up.

    Args:
        in_features: width of the common input.
        parts: checkpoint name of each part and its output width, in the order of the output's columns.
        bias: whether every part has a bias.
    """

    def __init__(self, in_features: int, parts: dict[str, int], bias: bool = False) -> None:
        super().__init__(in_features, sum(parts.values()), bias)
        self.parts = parts

    def forward_parts(self, x: Tensor) -> tuple[Tensor, ...]:
        """``[tokens, in_features]`` -> one ``[tokens, width]`` view per part."""
        return self(x).split(tuple(self.parts.values()), dim=-1)
