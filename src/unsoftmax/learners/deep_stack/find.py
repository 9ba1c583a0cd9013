"""A stack from the last streams of single rows: neurons of all layers, their order, then all together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.deep_stack.collapsed_fit import refine_collapsed
from unsoftmax.learners.deep_stack.gated_neurons import assemble_gated
from unsoftmax.learners.deep_stack.joint import FoundStack, refine_stack, rough_eps
from unsoftmax.learners.deep_stack.kinked_neurons import find_kinked
from unsoftmax.learners.deep_stack.neuron_space import neuron_spaces
from unsoftmax.learners.deep_stack.plain_neurons import assemble_plain
from unsoftmax.learners.deep_stack.rows_beside_kinks import rows_off_kinks, rows_that_turn_on
from unsoftmax.learners.deep_stack.stack_state import StackState, start_state
from unsoftmax.meters.deep.circle_kinks import is_piecewise_linear
from unsoftmax.meters.deep.collapsed_layer import CollapsedLayer, StreamReading
from unsoftmax.outcomes import OutsideClass, Stop, Unresolved
from unsoftmax.solvers.deep_stack.layer_order import order_layers
from unsoftmax.solvers.deep_stack.neurons import Collapsed, GatedNeurons, Neurons, solve_written
from unsoftmax.solvers.deep_stack.soft_layers import separate_layers

__all__ = ["find_stack"]

# of the polynomial in s behind second derivatives: two leave 1e-9, four times more queries
_CURVATURE_TERMS = 2
_SHORT = 1e-6  # error of c0 beyond which answers are short floats, or rows are bounded: more terms are needed
# all are tried: few terms of a series blow rounding up less, many leave less of its rest
_SHORT_TERMS = (3, 4, 5, 8)
_JET_TERMS = 5  # behind c0 and c1: they leave 1e-11 and 1e-7
_KINKED_TERMS = 3  # the same beside kinks: the fewer terms, the longer rows may be, and the fewer meet a kink
_SURPLUS = 1.6  # equations over unknowns
_LINEAR_ORDER = 2500  # unknowns J² up to which the order of layers is one linear fit
_CLEAR_ORDER = 1e-4  # error of c1 up to which every pair is one unknown of that fit
_MOST_LAYERS = 8  # a cap on the search
_FINE = 1e-8  # misfit of c0 of a right fit; it leaves 1e-11 in float64
# the same over the error of c0 where it is larger: right fits leave 0.2 of it, one wrong neuron left 55
_ERRORS = 10.0
_FAINT_PATH = 0.3  # of all that is written: a linear part below may be an error of the neurons
_NO_PART = 1e-6  # of what all neurons write: a linear part or a constant below is none
_COARSE = 0.3  # misfit of c0 from which neurons are not those of the target


def find_stack(
    stream: StreamReading, rng: np.random.Generator, *, normed: bool, bound: float = np.inf
) -> FoundStack:
    """normed: whether streams come behind a norm of gain one; else they are read as they are. bound: largest
    norm of a row that may be sent."""
    layer = _best_reading(stream, rng, (_CURVATURE_TERMS,), 0, bound)
    short = layer.errors[0] > _SHORT
    if short:
        layer = _best_reading(stream, rng, _SHORT_TERMS, 0, bound)
    noise = layer.jitter(rng) * layer.sizes[0]
    kinked = None
    if not short and is_piecewise_linear(layer, stream.width, noise, rng):
        kinked = find_kinked(layer, noise, rng)
    if kinked is not None:
        jets = _best_reading(stream, rng, (_KINKED_TERMS,), 1, bound)
        collapsed, read = _explained(jets, kinked, rng)
    else:
        jets = _best_reading(stream, rng, _SHORT_TERMS if short else (_JET_TERMS,), 1, bound)
        coarse = [] if short else [layer.single(noise / layer.sizes[0], bound)]
        collapsed, read = _collapsed([*coarse, layer], jets, rng, order=4 if short else 2)
    start = _ordered(collapsed, jets, read, rng, normed=normed)
    rows = rows_that_turn_on(collapsed.neurons, rng)
    return refine_stack(stream, start, rng, rounding=noise * layer.scales.top, rows=rows)


def _best_reading(
    stream: StreamReading, rng: np.random.Generator, terms: tuple[int, ...], order: int, bound: float
) -> CollapsedLayer:
    """The collapsed layer with the number of terms that reads c_order best."""
    found, wrong = [], list[Stop]()
    for count in terms:
        try:
            found.append(CollapsedLayer.measured(stream, rng, terms=count, order=order, bound=bound))
        except (OutsideClass, Unresolved) as stop:
            wrong.append(stop)
    if not found:
        raise wrong[0]
    return min(found, key=lambda each: each.errors[order])


def _collapsed(
    layers: list[CollapsedLayer], jets: CollapsedLayer, rng: np.random.Generator, *, order: int
) -> tuple[Collapsed, tuple[Array, Array]]:
    """All neurons, and rows n with their c1; the first set of neurons that explains c0. The last layer is the
    finest, and asked where sets found in the others are refused: they miss faint neurons."""
    wrong: Stop | None = None
    for number, layer in enumerate(layers, 1):
        for space in neuron_spaces(layer, rng, order=order, few=number < len(layers)):
            try:
                plain = space.ups is None
                found = assemble_plain(layer, space, rng) if plain else assemble_gated(layer, space, rng)
                return _explained(jets, found, rng)
            except (OutsideClass, Unresolved) as stop:
                wrong = stop
    assert wrong is not None
    raise wrong


def _explained(
    jets: CollapsedLayer, neurons: Neurons, rng: np.random.Generator
) -> tuple[Collapsed, tuple[Array, Array]]:
    """Neurons refined on c0 of random directions."""
    J, d = len(neurons), jets.stream.width
    gated = isinstance(neurons, GatedNeurons)
    unknowns = 3 * J * d + d * d if gated else J * (2 * d + 1) + d
    count = int(_SURPLUS * max(J + d + 1, unknowns / (d - 1))) + 2
    n = rows_off_kinks(jets, neurons, max(count, rows_that_turn_on(neurons, rng)), rng)
    c0, c1 = jets.jets(n)
    collapsed = solve_written(neurons, n, c0)
    if collapsed.misfit > _COARSE:
        raise Unresolved(
            f"neurons that explain second derivatives leave {collapsed.misfit:.2g} of the values"
        )
    allowed, faint = max(_FINE, _ERRORS * jets.errors[0]), max(_NO_PART, _ERRORS * jets.errors[0])
    simple: Collapsed | None = None
    if collapsed.path is not None and rms(n @ collapsed.path.T) < _FAINT_PATH * rms(collapsed.values(n)):
        simple = refine_collapsed(replace(collapsed, path=None), n, c0, faint)
    if simple is None or simple.misfit > allowed:
        simple = refine_collapsed(collapsed, n, c0, faint)
    collapsed = simple
    if collapsed.misfit > allowed:
        raise Unresolved(
            f"a fit of all neurons stops at {collapsed.misfit:.2g} of the values, which are read to "
            f"{jets.errors[0]:.1g}; layers with different activations, or another kind of sublayer?"
        )
    return collapsed, (n, c1)


def _ordered(
    collapsed: Collapsed,
    jets: CollapsedLayer,
    read: tuple[Array, Array],
    rng: np.random.Generator,
    *,
    normed: bool,
) -> StackState:
    """Neurons divided into layers by c1: one linear fit where there are no paths, no constants, no kinks
    (behind which pairs of neurons are not independent), and c1 is read well enough for that many pairs."""
    (n, c1), J, d = read, len(collapsed.neurons), collapsed.width
    eps = rough_eps(jets.stream, rng)
    neurons, written = collapsed.neurons, collapsed.written
    plain = collapsed.path is None and not np.any(collapsed.constant)
    clear = jets.errors[1] < _CLEAR_ORDER and J * J <= _LINEAR_ORDER
    if plain and neurons.activation.smooth and clear:
        need = int(_SURPLUS * J * J / (d - 1)) + 2
        if need > len(n):
            more = rows_off_kinks(jets, neurons, need - len(n), rng)
            n, c1 = np.vstack([n, more]), np.vstack([c1, jets.jets(more)[1]])
        layers = order_layers(collapsed, n, c1)
        constants = np.zeros((int(layers.max()) + 1, d))
        return start_state(neurons, written, layers, None, constants, eps, normed=normed)
    soft = separate_layers(collapsed, n, c1, rng, _MOST_LAYERS, error=jets.errors[1])
    return start_state(neurons, written, soft.layers, soft.paths, soft.constants, eps, normed=normed)
