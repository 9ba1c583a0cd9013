"""Which parameters of an encoder block are one function, and the representative of each class.

P removes the mean, which LayerNorm cannot see; for RMSNorm P is the identity.

Pre-norm: gain and bias of the first norm move into the heads (P·diag(g)·W·diag(g)·P, and likewise w0 and V)
and their constant;
those of the second norm into the network's first layer; the mean of the heads' constant into the network's
constant.
Without a second norm: y and the network meet in one linear part; the heads' constant moves into the network.
Without a skip connection as well: one invertible matrix between all V and the network is free; ΣV = 1.
Post-norm: the bias of the first norm moves into both layers of the network; only P·V, P·c and the network's
P-part are seen; one factor κ, of either sign, is free: (g1, U, c) → κ(g1, U, c), A → A/κ, eps2 → κ²·eps2, g2
→ sign(κ)·g2. Both: heads and neurons in any order, neurons up to reflection, ReLU neurons up to scale; ReLU
neurons whose kink lies outside the ball that a norm's output fills are affine.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.encoder_block import BlockNetwork, EncoderBlock
from unsoftmax.models.matrices import Factors
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.networks.gated_network import GatedNetwork
from unsoftmax.models.networks.network import Network
from unsoftmax.models.parts.norms import LayerNorm, Norm
from unsoftmax.models.single_head import SingleHead

__all__ = ["canonical_block", "network_distance", "norm_distance"]

Block = TypeVar("Block", bound=EncoderBlock)
# of what a neuron adds: two blocks of which one holds such a neuron, and the other what it passes on, differ
# by no more than that
_HARDLY_BENDS = 1e-8
_INVERTIBLE = 1e10  # condition of the sum of all V from which it is taken for singular


def canonical_block(block: Block) -> Block:
    """The representative of all parameters with this function."""
    found = _pre_norm(block) if block.norm_first else _post_norm(block)
    return found.asked_by(block.asking)


def _projector(norm: Norm | None, width: int) -> Array:
    return np.eye(width) - 1.0 / width if isinstance(norm, LayerNorm) else np.eye(width)


def _plain(norm: Norm | None) -> Norm | None:
    return None if norm is None else type(norm)(np.ones(norm.width), None, norm.eps)


def _pre_norm(block: Block) -> Block:
    d, attention, network = block.width, block.attention, block.network
    if block.first is not None:
        matrix = block.first.gain[:, None] * _projector(block.first, d)
        shift = np.zeros(d) if block.first.bias is None else block.first.bias
        attention = _behind(attention, matrix, shift)
    constant = np.asarray(attention.c)
    if block.second is not None:
        matrix = block.second.gain[:, None] * _projector(block.second, d)
        shift = np.zeros(d) if block.second.bias is None else block.second.bias
        network = network.after(matrix, shift)
        if isinstance(network, Network):
            network = network.within(np.sqrt(d))
    readout = block.readout
    if isinstance(network, Network) and (block.second is None or _constant(network)):
        return _without_second_norm(block, attention, network)
    if isinstance(block.second, LayerNorm):
        passed = np.ones(d) if readout is None else readout.sum(axis=0)
        network = network.shifted(constant.mean() * passed)
        constant = constant - constant.mean()
    attention = MultiHead(_bare(attention), constant).canonical()
    norms = _plain(block.first), _plain(block.second)
    return type(block)(
        attention, network.canonical(), *norms, norm_first=True, skip=block.skip, readout=readout
    )


def _constant(network: Network) -> bool:
    return network.neurons == 0 and (network.linear is None or not network.linear.any())


def _without_second_norm(block: Block, attention: MultiHead, network: Network) -> Block:
    """What is answered beside the network is a linear part of it, and the heads' constant moves into it."""
    d, m = block.width, network.U.shape[1]
    beside = np.eye(d) if block.readout is None else block.readout
    linear = beside + (0.0 if network.linear is None else network.linear)
    whole = Network(network.A, network.U, network.b, network.c, linear, activation=network.activation)
    heads = _bare(attention)
    shift = np.broadcast_to(np.asarray(attention.c, dtype=np.float64), (d,))
    values = np.asarray(attention.v)
    mixing = np.eye(d)
    if not block.skip and np.linalg.cond(values) < _INVERTIBLE:  # heads' outputs are free up to one matrix
        heads = [SingleHead(h.matrix, np.linalg.solve(values.T, h.v.T).T, h.w0) for h in heads]
        mixing = values.T
    whole = whole.after(np.eye(d), shift).after(mixing, np.zeros(d))
    return type(block)(
        MultiHead(heads, np.zeros(d)).canonical(),
        whole.canonical(),
        _plain(block.first),
        None,
        norm_first=True,
        skip=block.skip,
        readout=np.zeros((d, m)),
    )


def _post_norm(block: Block) -> Block:
    d, network, first, second = block.width, block.network, block.first, block.second
    attention = block.attention
    if isinstance(first, LayerNorm):
        seen = _projector(first, d)
        heads = [SingleHead(head.matrix, head.v @ seen, head.w0) for head in _bare(attention)]
        attention = MultiHead(heads, np.asarray(attention.c) @ seen)
    if first is not None:
        if first.bias is not None:
            network = network.after(np.eye(d), first.bias).shifted(first.bias)
        first = type(first)(first.gain, None, first.eps)
        if isinstance(first, LayerNorm) and first.gain.all():
            inside = first.gain[:, None] * _projector(first, d) / first.gain
            network = network.after(inside, np.zeros(d))
        if isinstance(network, Network):
            network = _within_ellipsoid(network, np.sqrt(d) * first.gain)
    if isinstance(second, LayerNorm):
        network = network.followed(_projector(second, d))
    if first is not None and second is not None:
        first, second, network = _rescaled(first, second, network)
    return type(block)(
        attention.canonical(), network.canonical(), first, second, norm_first=False, skip=block.skip
    )


def _within_ellipsoid(network: Network, axes: Array) -> Network:
    """`within` for points axes∘x with |x| <= 1."""
    if not axes.all():
        return network
    unit = network.after(np.diag(axes), np.zeros(len(axes))).within(1.0)
    return unit.after(np.diag(1.0 / axes), np.zeros(len(axes)))


def _rescaled(first: Norm, second: Norm, network: BlockNetwork) -> tuple[Norm, Norm, BlockNetwork]:
    """κ such that the first gain has mean square one and a mean that is not negative."""
    size = float(np.sqrt(np.mean(first.gain**2)))
    if size == 0.0:
        return first, second, network
    factor = (1.0 if first.gain.sum() >= 0.0 else -1.0) / size
    d = first.width
    scaled = network.after(np.eye(d) / factor, np.zeros(d)).followed(factor * np.eye(d))
    return (
        type(first)(factor * first.gain, None, first.eps),
        type(second)(np.sign(factor) * second.gain, second.bias, factor**2 * second.eps),
        scaled,
    )


def _bare(attention: MultiHead) -> list[SingleHead]:
    """The heads without constants of their own."""
    return [SingleHead(head.matrix, head.v, head.w0) for head in attention.heads]


def _behind(attention: MultiHead, matrix: Array, shift: Array) -> MultiHead:
    """The heads of tokens matrix·n + shift, as heads of n."""
    heads, constant = [], np.asarray(attention.c, dtype=np.float64)
    for head in _bare(attention):
        bias = head.matrix.apply(shift[None])[0] + (0.0 if head.w0 is None else head.w0)
        if isinstance(head.matrix, Factors):
            W: object = (matrix.T @ head.matrix.left, matrix.T @ head.matrix.right)
        else:
            W = matrix.T @ head.W @ matrix
        w0 = matrix.T @ bias
        heads.append(SingleHead(W, matrix.T @ head.v, w0 if w0.any() else None))
        constant = constant + shift @ head.v
    return MultiHead(heads, constant)


def norm_distance(mine: Norm | None, theirs: Norm | None) -> float:
    """Largest relative difference of gain, bias and eps."""
    if mine is None or theirs is None:
        return 0.0 if mine is theirs else 1.0
    size = float(np.linalg.norm(mine.gain))
    biases = [np.zeros(norm.width) if norm.bias is None else norm.bias for norm in (mine, theirs)]
    parts = [float(np.linalg.norm(mine.gain - theirs.gain)), float(np.linalg.norm(biases[0] - biases[1]))]
    top = max(mine.eps, theirs.eps)
    return max(
        *(part / size if size > 0 else part for part in parts),
        abs(mine.eps - theirs.eps) / top if top > 0 else 0.0,
    )


def network_distance(mine: EncoderBlock, theirs: EncoderBlock) -> float:
    """Distance of the networks of two canonical blocks. A neuron that hardly bends may stand for what it
    passes on: then it counts as far as it bends."""
    match mine.network, theirs.network:
        case Network() as network, Network() as partner:
            apart = network.distance(partner)
            (mine_straight, bend), (their_straight, their_bend) = _straightened(mine), _straightened(theirs)
            if mine_straight is None and their_straight is None:
                return apart
            plain = (mine_straight or network).distance(their_straight or partner)
            return min(apart, max(plain, bend, their_bend))
        case GatedNetwork() as gated, GatedNetwork() as partner:
            return gated.distance(partner)
    return 1.0


def _straightened(block: EncoderBlock) -> tuple[Network | None, float]:
    """The network of a canonical block without the neurons that hardly bend, and how far those do, over what
    each adds; None where no neuron is such."""
    network, norm = block.network, block.second if block.norm_first else block.first
    if not isinstance(network, Network) or norm is None or not norm.gain.all():
        return None, 0.0
    axes = np.sqrt(block.width) * norm.gain  # a gain of ones where norms come first
    unit = network.after(np.diag(axes), np.zeros(len(axes)))
    bends = unit.bends(1.0)
    if not (bends <= _HARDLY_BENDS).any():
        return None, 0.0
    straight = unit.within(1.0, _HARDLY_BENDS).after(np.diag(1.0 / axes), np.zeros(len(axes)))
    return straight, float(bends[bends <= _HARDLY_BENDS].max())
