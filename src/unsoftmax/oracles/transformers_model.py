"""A language model of the package `transformers` in this process: rows as prompts, log-probabilities as
answers.

Only its answers are used; its weights are read for the ledger's fingerprint alone.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault
from unsoftmax.oracles.base import OracleSpec, checked_answers
from unsoftmax.oracles.identity import content_fingerprint

__all__ = ["TransformersOracle", "is_language_model"]


def is_language_model(target: object) -> bool:
    """Whether a target is a model of `transformers` that takes embeddings and has an unembedding."""
    transformers = sys.modules.get("transformers")  # whoever passes such a model has imported it
    if transformers is None or not isinstance(target, transformers.PreTrainedModel):
        return False
    return target.get_output_embeddings() is not None


class TransformersOracle:
    """Log-probabilities of the token after the last row, in the model's own datatype (`model.double()` for
    float64).

    Many models compute norms and rotary angles in float32 whatever their datatype is.
    """

    def __init__(self, model: Any) -> None:
        import torch

        self._torch, self._model = torch, model
        self._embedding = model.get_input_embeddings()
        label = f"{type(model).__module__}.{type(model).__qualname__}"
        weights = {
            name: t.detach().to("cpu", torch.float64).numpy() for name, t in model.state_dict().items()
        }
        self.spec = OracleSpec(
            width=int(self._embedding.weight.shape[1]),
            outputs=int(model.get_output_embeddings().weight.shape[0]),
            max_length=getattr(model.config, "max_position_embeddings", None),
            name=type(model).__name__,
            fingerprint=f"torch:{label}:{content_fingerprint(weights, label)}",
            log_probabilities=True,
        )

    def __call__(self, batch: Array, /) -> Array:
        torch, model = self._torch, self._model
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                rows = torch.from_numpy(np.ascontiguousarray(batch)).to(model.device, model.dtype)
                logits = model(inputs_embeds=rows, use_cache=False).logits[:, -1].to(torch.float64)
                answers = logits.log_softmax(-1).cpu().numpy()
        except Exception as error:
            raise OracleFault(
                f"the model raised {type(error).__name__} on a batch of shape {batch.shape}: {error}"
            ) from error
        finally:
            model.train(training)
        return checked_answers(answers, len(batch), self.spec.outputs)
