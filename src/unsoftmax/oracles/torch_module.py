"""A torch module as an oracle. Only its answers are used; its weights are read for the ledger's fingerprint
alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.float_formats import short_format
from unsoftmax.foreign_code import foreign_code
from unsoftmax.oracles.base import OracleSpec, checked_answers, named_parts
from unsoftmax.oracles.identity import content_fingerprint

__all__ = ["TorchOracle"]


class TorchOracle:
    """An nn.Module that maps (B, N, d), or token ids (B, N), to (B,), (B, 1) or (B, m), or an
    nn.MultiheadAttention or nn.TransformerEncoderLayer whose last row is read.

    Sequences are sent in the module's own datatype and device, in evaluation mode and without gradients.
    readout: a vector (d,) that makes one number of the last row of an nn.MultiheadAttention, or (d, m) for
    vectors; without it the row itself is the answer.

    >>> import torch
    >>> layer = torch.nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
    >>> oracle = TorchOracle(layer, readout=np.ones(4))
    >>> oracle.spec.width, oracle(np.zeros((3, 2, 4))).shape
    (4, (3,))
    """

    def __init__(
        self, module: Any, *, readout: Any = None, width: int | None = None, outputs: int | None = None
    ) -> None:
        import torch

        self._torch = torch
        self._module = module
        tensors = [t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()]
        self._dtype = tensors[0].dtype if tensors else torch.float64
        self._device = tensors[0].device if tensors else torch.device("cpu")
        self._attention = isinstance(module, torch.nn.MultiheadAttention)
        self._readout: Array | None = None if readout is None else np.array(readout, dtype=np.float64)
        self._layer = isinstance(module, torch.nn.TransformerEncoderLayer)
        if self._attention:
            width, outputs = self._check_attention(module, width, outputs)
        elif self._layer and readout is None:
            width = outputs = self._check_attention(module.self_attn, width, outputs)[0]
        elif readout is not None:
            raise UsageError(
                "a readout is for nn.MultiheadAttention; let any other module return its numbers itself"
            )
        label = f"{type(module).__module__}.{type(module).__qualname__}"
        weights = {
            name: t.detach().to("cpu", torch.float64).numpy()
            for name, t in module.state_dict().items()
            if isinstance(t, torch.Tensor)
        }
        if self._readout is not None:
            weights["readout"] = self._readout
        pinned = content_fingerprint(weights, label)
        # the code of a user's own module may change while its weights stay
        fingerprint = pinned if self._attention else f"torch:{label}:{pinned}"
        self.spec = OracleSpec(
            width=width,
            outputs=outputs,
            name=type(module).__name__,
            fingerprint=fingerprint,
            arithmetic=short_format(str(self._dtype).removeprefix("torch.")),
        )

    def _check_attention(self, module: Any, width: int | None, outputs: int | None) -> tuple[int, int | None]:
        d = int(module.embed_dim)
        if module.kdim != d or module.vdim != d:
            raise UsageError(
                f"the attention has keys of width {module.kdim} and values of width {module.vdim}; it must "
                f"attend to its own input, width {d}"
            )
        if width is not None and width != d:
            raise UsageError(f"width {width}, but the attention has width {d}; pass width={d}")
        if self._readout is None:
            return d, d
        if self._readout.shape[:1] != (d,) or self._readout.ndim > 2:
            raise UsageError(f"the readout must be ({d},) or ({d}, m), not {self._readout.shape}")
        return d, None if self._readout.ndim == 1 else self._readout.shape[1]

    def with_outputs(self, outputs: int) -> TorchOracle:
        """The same module, read as one whose answers hold that many numbers."""
        return TorchOracle(self._module, readout=self._readout, width=self.spec.width, outputs=outputs)

    def __call__(self, batch: Array, /) -> Array:
        return checked_answers(self._ask(batch, self._read_last_row), len(batch), self.spec.outputs)

    @property
    def answers_every_row(self) -> bool:
        """Whether the module is a layer known to answer (B, N, d)."""
        return bool(self._attention or self._layer)

    def raw(self, batch: Array) -> Array:
        """What the module answers, of whatever shape, as float64; all rows of a layer."""
        return self._ask(batch, lambda answers: answers)

    def _ask(self, batch: Array, read: Callable[[Any], Any]) -> Array:
        torch = self._torch
        with np.errstate(over="ignore"), torch.no_grad(), _evaluating(self._module):
            sequences = self._tensor(batch)
            try:
                with foreign_code():
                    answers = read(self._answers(sequences))
            except (Exception, SystemExit) as error:
                raise OracleFault(
                    f"the module raised {type(error).__name__} on a batch of shape {batch.shape}: {error}. "
                    f"It must map {'ids (B, N)' if batch.ndim == 2 else '(B, N, d)'} to (B,)"
                ) from error
        if not isinstance(answers, torch.Tensor):
            raise OracleFault(
                f"the module returned {type(answers).__name__} instead of a tensor; put a function around it "
                f"that returns one{named_parts(answers)}"
            )
        return np.asarray(answers.detach().to("cpu", torch.float64).numpy())

    def _tensor(self, batch: Array) -> Any:
        """Token ids as whole numbers, rows in the module's own datatype."""
        ids = np.issubdtype(batch.dtype, np.integer)
        sequences = self._torch.from_numpy(np.array(batch, dtype=np.int64 if ids else np.float64))
        return sequences.to(self._device) if ids else sequences.to(self._device, self._dtype)

    def _answers(self, sequences: Any) -> Any:
        """All rows (B, N, d) of a layer; what any other module returns."""
        if not self.answers_every_row:
            return self._module(sequences)
        attention = self._module if self._attention else self._module.self_attn
        first = sequences if attention.batch_first else sequences.transpose(0, 1)
        rows = (
            self._module(first, first, first, need_weights=False)[0]
            if self._attention
            else self._module(first)
        )
        return rows if attention.batch_first else rows.transpose(0, 1)

    def _read_last_row(self, answers: Any) -> Any:
        if not self.answers_every_row:
            return answers
        last = answers[:, -1]
        if self._readout is None:
            return last
        return last @ self._torch.from_numpy(self._readout).to(self._device, self._dtype)


@contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """Evaluation mode for the time of a call, and every part back as it was."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
