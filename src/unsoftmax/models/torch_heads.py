"""Heads as a torch module."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unsoftmax.models.matrices import Factors
from unsoftmax.models.single_head import SingleHead
from unsoftmax.oracles import Array

__all__ = ["Head", "SumOfHeads"]


class Head(nn.Module):
    """One head: softmax over rows of x_iᵀ(W x_N + w0), times x_i V. W is left @ right.T when it is held as factors."""

    def __init__(self, head: SingleHead) -> None:
        super().__init__()
        left, right = (head.matrix.left, head.matrix.right) if isinstance(head.matrix, Factors) else (head.W, None)
        self.left = nn.Parameter(torch.tensor(left, dtype=torch.float64))
        self.right = None if right is None else nn.Parameter(torch.tensor(right, dtype=torch.float64))
        self.w0 = None if head.w0 is None else nn.Parameter(torch.tensor(head.w0, dtype=torch.float64))
        self.v = nn.Parameter(torch.tensor(head.v.reshape(head.width, -1), dtype=torch.float64))

    def forward(self, sequences: Tensor) -> Tensor:
        """Answers (B, m)."""
        asking = sequences[:, -1]
        against = (asking if self.right is None else asking @ self.right) @ self.left.T
        if self.w0 is not None:
            against = against + self.w0
        weights = torch.softmax(torch.einsum("bnd,bd->bn", sequences, against), dim=1)
        return torch.einsum("bn,bnm->bm", weights, sequences @ self.v)


class SumOfHeads(nn.Module):
    """Heads that add up to one number a sequence (B,), or to vectors (B, m)."""

    def __init__(self, heads: Sequence[SingleHead], constant: Array) -> None:
        super().__init__()
        self.scalar = heads[0].v.ndim == 1
        self.heads = nn.ModuleList(Head(head) for head in heads)
        self.c = nn.Parameter(torch.tensor(constant, dtype=torch.float64))

    def forward(self, sequences: Tensor) -> Tensor:
        """Answers to a batch (B, N, d)."""
        total = self.c + torch.stack([head(sequences) for head in self.heads]).sum(dim=0)
        return total[:, 0] if self.scalar else total
