"""`recover_network`: a two-layer network behind any callable on rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.learners import Learner
from unsoftmax.learners.smooth_network.any_network import NetworkLearner
from unsoftmax.ledger import Progress
from unsoftmax.models import GatedNetwork, Network, ReluNetwork
from unsoftmax.oracles import FunctionOracle, OracleSpec
from unsoftmax.recovery.inputs.targets import as_oracle
from unsoftmax.recovery.recover import recover
from unsoftmax.recovery.result import Result

__all__ = ["recover_network", "rows_oracle"]


def recover_network(
    f: Callable[[Array], Any],
    width: int | None = None,
    *,
    budget: int | None = None,
    seed: int = 0,
    input_bound: float | None = None,
    learner: Learner | None = None,
    outputs: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Recovers g(x) = Σ u_k φ(a_k·x + b_k) + l·x + c from a callable on arrays (n, d) -> (n,), or (n, m), or
    from a torch module on rows.

    The result is that of `recover`. Where φ is ReLU and answers are numbers its model is a `ReluNetwork` in
    canonical form, and `plain_network` turns it into one without linear part; where answers are vectors, or φ
    is GELU, SiLU, tanh, sigmoid or softplus, a `Network`, and a `GatedNetwork` for gated units (SwiGLU,
    GEGLU).
    learner: `ReluNetworkLearner(polish=..., thoroughness=...)` to trade queries for digits or for narrower
    bumps, or `milli_2019()`.

    >>> import unsoftmax
    >>> hidden = unsoftmax.random_relu_network(5, 9, seed=2, biases=True)
    >>> result = unsoftmax.recover_network(lambda X: hidden(X), width=5)
    >>> str(result.status), result.model.neurons, hidden.distance(result.model) < 1e-9
    ('EXACT', 9, True)
    """
    if not callable(f):
        raise UsageError(f"a network is a callable on arrays (n, d) -> (n,), not {type(f).__name__}")
    if isinstance(f, ReluNetwork | Network | GatedNetwork):
        width, outputs = f.width if width is None else width, f.outputs
    return recover(
        rows_oracle(f, width, outputs),
        width=width,
        budget=budget,
        seed=seed,
        input_bound=input_bound,
        learner=learner if learner is not None else NetworkLearner(),
        progress=progress,
    )


def rows_oracle(
    f: Callable[[Array], Any], width: int | None = None, outputs: int | None = None
) -> FunctionOracle:
    """A callable on rows as an oracle of one-row sequences."""
    name = getattr(f, "__qualname__", type(f).__name__)
    of_rows: Callable[[Array], Any] = getattr(as_oracle(f), "raw", f)  # modules of torch take tensors
    return FunctionOracle(
        lambda batch: of_rows(batch[:, 0]), OracleSpec(width=width, outputs=outputs, max_length=1, name=name)
    )
