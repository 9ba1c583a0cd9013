"""Models as torch modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from unsoftmax.arrays import Array
from unsoftmax.models.conversions.export_parts import Parts
from unsoftmax.models.matrices import Factors
from unsoftmax.models.networks.relu_network import ReluNetwork
from unsoftmax.models.single_head import SingleHead

__all__ = ["Composite", "Head", "Network"]


class Head(nn.Module):
    """One head: softmax over rows of x_iᵀ(W x_N + w0), times x_i V. W is left @ right.T when it is held as
    factors."""

    def __init__(self, head: SingleHead) -> None:
        super().__init__()
        left, right = (
            (head.matrix.left, head.matrix.right) if isinstance(head.matrix, Factors) else (head.W, None)
        )
        self.left = _parameter(left)
        self.right = None if right is None else _parameter(right)
        self.w0 = None if head.w0 is None else _parameter(head.w0)
        self.v = _parameter(head.v)

    def forward(self, sequences: Tensor) -> Tensor:
        """Answers (B, m)."""
        asking = sequences[:, -1]
        against = (asking if self.right is None else asking @ self.right) @ self.left.T
        if self.w0 is not None:
            against = against + self.w0
        weights = torch.softmax(torch.einsum("bnd,bd->bn", sequences, against), dim=1)
        return torch.einsum("bn,bnm->bm", weights, sequences @ self.v)


class Network(nn.Module):
    """Σ_k u_k relu(a_k·x + b_k) + linear·x + c."""

    def __init__(self, network: ReluNetwork) -> None:
        super().__init__()
        self.A, self.u = _parameter(network.A), _parameter(network.u)
        self.b = None if network.b is None else _parameter(network.b)
        self.linear = None if network.linear is None else _parameter(network.linear)
        self.c = _parameter(network.c)

    def forward(self, rows: Tensor) -> Tensor:
        """Answers (B, 1) to rows (B, d)."""
        hidden = rows @ self.A.T if self.b is None else rows @ self.A.T + self.b
        answers = torch.relu(hidden) @ self.u + self.c
        return (answers if self.linear is None else answers + rows @ self.linear)[:, None]


class Composite(nn.Module):
    """Heads that add up, a residual and a network: (B, N, d) to (B,), or to (B, m) for vector answers."""

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.scalar = parts.scalar
        self.first_row = parts.first_row
        self.heads = nn.ModuleList(Head(head) for head in parts.heads)
        self.constant = _parameter(parts.constant)
        self.residual = parts.residual
        self.skip = None if parts.skip is None else _parameter(parts.skip)
        self.network = None if parts.network is None else Network(parts.network)

    def forward(self, sequences: Tensor) -> Tensor:
        """Answers to a batch."""
        if self.first_row:
            sequences = sequences.flip(1)
        total = self.constant.expand(len(sequences), -1)
        for head in self.heads:
            total = total + head(sequences)
        if self.residual:
            total = total + self.residual * sequences[:, -1]
        if self.skip is not None:
            total = total + sequences[:, -1] @ self.skip
        if self.network is not None:
            total = self.network(total)
        return total[:, 0] if self.scalar else total


def _parameter(value: Array | float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(value, dtype=torch.float64))
