"""ReLU networks with vector answers, and networks as modules of torch, against torch's own weights."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax

torch = pytest.importorskip("torch")


def _module(d: int, neurons: int, outputs: int, seed: int, bias: bool = True):  # type: ignore[no-untyped-def]
    torch.manual_seed(seed)
    first, last = torch.nn.Linear(d, neurons, bias=bias), torch.nn.Linear(neurons, outputs, bias=bias)
    return torch.nn.Sequential(first, torch.nn.ReLU(), last).double()


def _hidden(module) -> unsoftmax.Network:  # type: ignore[no-untyped-def]
    A, b, U, c = (part.detach().numpy() for part in module.parameters())
    return unsoftmax.Network(A, U.T, b, c)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("d", "neurons", "outputs"), [(6, 10, 3), (1, 4, 2), (16, 40, 10)])
def test_all_outputs_of_all_neurons(d: int, neurons: int, outputs: int, seed: int) -> None:
    module = _module(d, neurons, outputs, seed)
    result = unsoftmax.recover_network(module, width=d, seed=seed)
    found = result.unwrap()
    assert isinstance(found, unsoftmax.Network)
    assert result.error_bound is not None
    assert _hidden(module).distance(found) <= result.error_bound < 1e-5
    size = unsoftmax.Size(width=d, neurons=neurons, outputs=outputs, biased=True)
    assert result.claim is not None
    assert result.queries.learning <= result.claim.queries(size)


def test_a_module_without_biases_and_one_output() -> None:
    module = _module(5, 7, 1, seed=4, bias=False)
    result = unsoftmax.recover_network(module, width=5)
    assert result.status is unsoftmax.Status.EXACT
    rows = np.random.default_rng(0).standard_normal((50, 5))
    with torch.no_grad():
        expected = module(torch.from_numpy(rows)).numpy()[:, 0]
    assert np.allclose(result.unwrap()(rows), expected, atol=1e-9)


@pytest.mark.parametrize("change", ["leak", "bend", "third layer"])
def test_what_is_no_such_network_is_not_recovered(change: str) -> None:
    module = _module(4, 6, 3, seed=5)
    if change == "third layer":
        module = torch.nn.Sequential(module, torch.nn.ReLU(), torch.nn.Linear(3, 2).double())

    def answers(rows: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            plain = np.asarray(module(torch.from_numpy(rows)).numpy())
        if change == "leak":  # another function beyond the usual rows
            plain *= np.where(np.linalg.norm(rows, axis=1)[:, None] > 2.0, 1.01, 1.0)
            return plain
        if change == "bend":
            plain += 1e-4 * np.sin(rows[:, :1])
        return plain

    result = unsoftmax.recover_network(answers, width=4)
    assert result.model is None


@pytest.mark.parametrize("seed", range(4))
def test_bounds_cover_neurons_of_very_different_sizes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((8, 4)) * 10.0 ** rng.uniform(-3, 3, (8, 1))
    hidden = unsoftmax.Network(A, rng.standard_normal((8, 3)), rng.standard_normal(8), rng.standard_normal(3))
    result = unsoftmax.recover_network(lambda X: hidden(X), width=4, seed=seed)
    if isinstance(result.model, unsoftmax.Network):
        assert result.error_bound is not None
        assert hidden.distance(result.model) <= result.error_bound


def test_an_affine_function_has_no_neurons() -> None:
    L = np.array([[1.0, 2.0], [3.0, -4.0], [0.5, 0.0]])
    result = unsoftmax.recover_network(lambda X: X @ L + 1.0, width=3)
    assert isinstance(result.model, unsoftmax.Network)
    assert result.model.neurons == 0
