"""Neurons made similar to one another, so that extraction cannot tell them apart (Kurian and Aysu, NeurIPS
2025, arXiv:2509.16546). Their training is stood in for by moving every neuron towards the mean one and
fitting the output weights again to the original answers on honest sequences."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.models import Model, ReluNetwork, Transformer

__all__ = ["with_similar_neurons"]


def with_similar_neurons(model: Model, similarity: float, honest: Array) -> Model:
    """The protected model. similarity: 0 leaves it alone, close to 1 all neurons are nearly one.

    >>> import unsoftmax
    >>> model = unsoftmax.random_transformer(4, 3, seed=0)
    >>> protected = with_similar_neurons(model, 0.9, np.zeros((1, 2, 4)))
    >>> float(np.ptp(protected.network.A, axis=0).max()) < float(np.ptp(model.network.A, axis=0).max())
    True
    """
    if not isinstance(model, Transformer):
        raise UsageError(f"neurons can be made similar in a Transformer; a {model.family} model has none")
    network = model.network
    b = np.zeros(network.neurons) if network.b is None else network.b
    A = (1.0 - similarity) * network.A + similarity * network.A.mean(axis=0)
    b = (1.0 - similarity) * b + similarity * b.mean()
    identity = ReluNetwork(np.zeros((1, model.width)), [0.0], linear=np.zeros(model.width))
    mixed = np.column_stack(
        [
            Transformer(model.W, _reading(identity, axis), model.w0, model.residual)(honest)
            for axis in range(model.width)
        ]
    )
    hidden = np.maximum(mixed @ A.T + b, 0.0)
    design = np.column_stack([hidden, mixed, np.ones(len(mixed))])
    fitted = np.linalg.lstsq(design, model(honest), rcond=None)[0]
    m = network.neurons
    biased = network.b is not None
    protected = ReluNetwork(A, fitted[:m], b if biased else None, float(fitted[-1]), fitted[m:-1])
    return Transformer(model.W, protected, model.w0, model.residual)


def _reading(network: ReluNetwork, axis: int) -> ReluNetwork:
    """A network that gives one entry of the mixture."""
    return ReluNetwork(network.A, network.u, linear=np.eye(network.width)[axis])
