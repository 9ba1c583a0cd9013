"""One box of every kind of the honesty fuzzer; and members that were refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks._honesty_score import what_is_wrong
from benchmarks.honesty_fuzz import run

import unsoftmax
from tests.cases.answers import ANSWERS
from tests.cases.honesty import KINDS
from tests.cases.honesty_case import Case
from tests.cases.honesty_liars import LIARS
from tests.learners.computed.float_layers import FloatLayer, random_layer
from unsoftmax import EncoderBlock, MultiHead, SingleHead, Status
from unsoftmax.arrays import Array
from unsoftmax.models import block_from_torch


def test_there_are_enough_kinds() -> None:
    assert len(KINDS) >= 60


_SOME = ("a Transformer", "a ReLU network", "tokens with positions", "heads and a skip")
_NEAR = [f"near: {name}" for name in _SOME]
_TWISTS = ("copies of rows", "keys behind the fifth", "short weights", "behind float32", "bounded rows")
_ODD = ("another after some answers", "noise on long sequences", "tokens, copies", "network, a step")
_CORNERS = ("odd norms", "one output", "every row", "tokens, a pair", "probabilities, smoothed")
_FEW = [
    *_NEAR,
    *(f"twist: {name}" for name in _TWISTS),
    *(f"odd: {name}" for name in _ODD),
    *(f"corner: {name}" for name in _CORNERS),
    "shape: behind errors",
    *(f"adverse: {name}" for name in ("a faint output", "a large skip", "a large linear part")),
    *(f"engine: {name}" for name in ("a nucleus", "rows of zeros are padding", "chunks in float32")),
    *(f"service: {name}" for name in ("a cache that forgets", "noise by hash", "warms up")),
]
# a few are enough here
_MANY = ("near: ", "twist: ", "odd: ", "corner: ", "shape: ", "adverse: ", "engine: ", "service: ")


@pytest.mark.parametrize(
    "kind", [*(kind for kind in KINDS if not kind.startswith(_MANY)), *_FEW, *(f"liar: {n}" for n in LIARS)]
)
def test_no_success_is_another_function_than_stated(kind: str) -> None:
    seed = 7
    outcome = run((kind, 3, seed))
    assert not outcome.wrong, outcome.wrong


@pytest.mark.parametrize(("d", "seed"), [(4, 5003), (6, 5004), (3, 5006)])
def test_another_temperature_for_rows_that_were_seen_before_shows(d: int, seed: int) -> None:
    """Of the first queries of every phase, those are asked again on which W shows."""
    assert not run(("corner: first row seen", d, seed)).recovered


@pytest.mark.parametrize("outputs", [None, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_target_that_remembers_sequences_by_their_ends_shows(outputs: int | None, seed: int) -> None:
    """Some fresh sequences share both ends with another one."""
    model = unsoftmax.random_multi_head(3, 1, seed=seed, outputs=outputs)
    kept: dict[bytes, object] = {}

    def box(X: Array) -> Array:
        keys = [bytes([len(x)]) + x[[0, -1]].tobytes() for x in X]
        return np.array([kept.setdefault(key, y) for key, y in zip(keys, model(X), strict=True)])

    assert not unsoftmax.recover(box, width=3, outputs=outputs, seed=seed).status.recovered


@pytest.mark.parametrize(("d", "seed"), [(3, 14), (2, 16), (4, 3), (3, 7), (2, 11)])
def test_two_temperatures_by_a_sign_are_no_transformer(d: int, seed: int) -> None:
    """One without neurons is a head, and is held to what rounding explains of a head."""
    assert not run(("adverse: two temperatures", d, seed)).recovered


def test_tokens_whose_values_are_not_known_end_the_search_with_a_status() -> None:
    assert run(("adverse: tokens beside a constant", 4, 2100006)).status == "UNRESOLVED"


def test_a_bound_that_only_says_how_little_is_known_refuses_no_member() -> None:
    """All fresh answers need an error of the parameters below 1e-14, and the bound is 6e-7."""
    case = KINDS["vector: extreme scales"](4, 21)
    result = unsoftmax.recover(case.box, width=4, seed=21, **case.options)  # type: ignore[arg-type]
    assert result.status.recovered, result.reason
    assert case.truth is not None
    assert case.truth.distance(result.unwrap()) <= (result.error_bound or 0.0)


def test_what_a_constant_hides_behind_short_floats_is_stated() -> None:
    head = unsoftmax.random_single_head(3, seed=12)
    beside = SingleHead(head.W, head.v, None, 1445.0)
    result = unsoftmax.recover(lambda X: beside(X).astype(np.float32), seed=12, width=3)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert result.certificate is not None
    half = 2.0**-14  # of the distance of float32 numbers beside 1445
    assert half / 2 < result.certificate.tolerance <= 2.0 * half
    assert "by which any answer may be off" in result.reason
    plain = unsoftmax.recover(lambda X: head(X).astype(np.float32), seed=12, width=3)
    assert plain.certificate is not None
    assert plain.certificate.tolerance == 0.0


@pytest.mark.parametrize(
    ("bound", "excess", "d", "seed"), [(1e-3, 2e-2, 6, 4), (2e-2, 1.4e-4, 2, 21), (7e-4, 3e-3, 1, 70)]
)
def test_another_w_shows_where_rows_are_short(bound: float, excess: float, d: int, seed: int) -> None:
    """What single rows show is known from them, and explains nothing of what faint scores do."""
    head = unsoftmax.random_single_head(d, seed=seed, biases=seed % 2 == 1)
    other = SingleHead((1.0 + excess) * head.W, head.v, head.w0, head.c)
    result = unsoftmax.recover(
        lambda X: (other if X.shape[1] > 2 else head)(X), width=d, seed=seed, input_bound=bound
    )
    assert result.model is None or (result.error_bound or 0.0) >= excess


def test_a_faint_attention_of_a_block_is_inside_its_bound() -> None:
    """Its W differs by 2e-7 in sequences of even length, and the answers by 2e-10."""
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 6, 0.0, batch_first=True, dtype=torch.float64).eval()
    tensors = dict(block_from_torch(layer).tensors())
    faint = {name: 1e-2 * part for name, part in tensors.items() if ".heads." in name and name.endswith(".v")}
    assert faint
    warm = {name: (1.0 + 2e-7) * part for name, part in tensors.items() if name.endswith((".W", ".W.left"))}
    assert warm
    usual = EncoderBlock.from_tensors(tensors | faint)
    other = EncoderBlock.from_tensors(tensors | faint | warm)
    result = unsoftmax.recover(
        lambda X: (usual if X.shape[1] % 2 else other)(X), width=8, outputs=8, family="encoder-block", seed=1
    )
    assert result.model is None or (result.error_bound or 0.0) >= 2e-7


def test_two_heads_that_one_head_nearly_explains_are_recovered() -> None:
    case = KINDS["shape: nearly equal heads"](4, 5003)
    result = unsoftmax.recover(case.box, width=4, seed=5003, **case.options)  # type: ignore[arg-type]
    assert result.status is Status.EXACT, result.reason
    assert case.truth is not None
    assert case.truth.distance(result.unwrap()) <= (result.error_bound or 0.0)


@pytest.mark.parametrize("kind", ["float32: heads, numbers", "float32: one head, numbers"])
def test_another_w_from_six_rows_on_shows_in_float32(kind: str) -> None:
    for seed in (3, 9):  # of width 16, where the size of a sequence is far above what its scores move
        outcome = run((kind, 3, seed))
        assert not outcome.wrong, outcome.wrong
        assert not outcome.recovered


@pytest.mark.parametrize("excess", [1e-7, 1e-8])
@pytest.mark.parametrize("outputs", [None, 24])
def test_another_w_from_six_rows_on_is_inside_the_bound_of_a_wide_layer(
    excess: float, outputs: int | None
) -> None:
    for seed in range(2):
        layer = unsoftmax.random_multi_head(24, 2, seed=seed, outputs=outputs, biases=True)
        heads = [SingleHead((1.0 + excess) * head.W, head.v, head.w0) for head in layer.heads]
        other = MultiHead(heads, layer.c)
        result = unsoftmax.recover(
            lambda X, a=layer, b=other: (a if X.shape[1] < 6 else b)(X), width=24, outputs=outputs, seed=seed
        )
        if result.model is not None:
            assert isinstance(result.model, MultiHead)
            assert other.distance(result.model) <= (result.error_bound or 0.0)


@pytest.mark.parametrize(("d", "heads", "rank", "outputs"), [(6, 2, 6, 3), (3, 3, None, 2), (1, 2, None, 2)])
def test_few_outputs_and_one_column(d: int, heads: int, rank: int | None, outputs: int) -> None:
    for seed in range(4):
        hidden = unsoftmax.random_multi_head(d, heads, rank, seed=seed, outputs=outputs)
        result = unsoftmax.recover(lambda X, h=hidden: h(X), width=d, outputs=outputs, seed=seed)
        assert result.status.recovered, result.reason
        assert isinstance(result.model, MultiHead)
        assert result.error_bound is not None
        # the weights of heads of width one hardly differ: their bounds are about 1e-9
        assert hidden.distance(result.model) <= result.error_bound <= 1e-7


@pytest.mark.parametrize(("seed", "biases"), [(2, True), (114, True), (33, False), (269, False)])
def test_two_heads_of_one_column_are_neither_taken_for_one_nor_left_open(seed: int, biases: bool) -> None:
    hidden = unsoftmax.random_multi_head(1, 2, seed=seed, biases=biases)
    result = unsoftmax.recover(hidden, seed=seed)
    assert result.status.recovered, result.reason
    assert isinstance(result.model, MultiHead)
    assert hidden.distance(result.model) <= (result.error_bound or 0.0) <= 1e-7


@pytest.mark.parametrize("seed", [9125, 9149, 9157])
def test_a_faint_head_of_one_column_is_recovered_with_the_bound_that_rounding_leaves_open(seed: int) -> None:
    hidden = unsoftmax.random_multi_head(1, 3, seed=seed, outputs=1, biases=seed == 9157)
    result = unsoftmax.recover(lambda X: hidden(X), width=1, outputs=1, seed=seed)
    assert result.status.recovered, result.reason
    assert isinstance(result.model, MultiHead)
    assert hidden.distance(result.model) <= (result.error_bound or 0.0)


@pytest.mark.parametrize("bound", [1.0, 10.0, 100.0, 1000.0])
def test_vector_answers_inside_a_limit_on_rows(bound: float) -> None:
    for seed in range(3):
        hidden = unsoftmax.random_multi_head(4, 2, seed=seed, outputs=4, biases=seed == 1)
        result = unsoftmax.recover(hidden, input_bound=bound, seed=seed)
        assert result.status is Status.EXACT, result.reason
        assert isinstance(result.model, MultiHead)
        assert result.error_bound is not None
        assert hidden.distance(result.model) <= result.error_bound


@pytest.mark.parametrize("kind", ["transformer: off near the origin", "transformer: skip, then a vector"])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_transformers_that_were_refused(kind: str, d: int) -> None:
    for seed in range(3):
        case = KINDS[kind](d, seed)
        result = unsoftmax.recover(case.box, width=d, seed=seed)
        assert result.status is Status.EXACT, result.reason


@pytest.mark.parametrize("kind", ["rounded to 4 decimals", "noise", "labels", "tolerance"])
@pytest.mark.parametrize("seed", range(3))
def test_several_heads_of_width_one_behind_errors_are_never_one(kind: str, seed: int) -> None:
    case = KINDS[f"answers: {kind}, several heads"](1, seed)
    assert not unsoftmax.recover(case.box, width=1, seed=seed).status.recovered


@pytest.mark.parametrize("seed", range(3))
def test_a_head_of_the_size_and_a_distance_that_are_stated_show(seed: int) -> None:
    head, other = (unsoftmax.random_single_head(5, seed=number) for number in (seed, 50 + seed))
    certificate = unsoftmax.recover(head).certificate
    assert certificate is not None
    assert certificate.faintest_head is not None
    assert certificate.closest_heads is not None
    assert f"{certificate.faintest_head:.1g} of the size" in certificate.statement
    size = certificate.faintest_head * np.linalg.norm(head.v) / np.linalg.norm(other.v)
    step = certificate.closest_heads * np.linalg.norm(head.W) / np.linalg.norm(other.W) * other.W
    for layer in (
        MultiHead([head, SingleHead(other.matrix, size * other.v)]),
        MultiHead([SingleHead(head.W + step / 2, head.v / 2), SingleHead(head.W - step / 2, head.v / 2)]),
    ):
        result = unsoftmax.recover(layer, seed=seed)
        assert result.model is None or len(result.model.ranks) == 2, result.reason


def test_last_digits_that_depend_on_the_size_of_a_call_are_no_other_function() -> None:
    for seed in range(3):
        case = KINDS["answers: last digits by batch"](3, seed)
        assert unsoftmax.recover(case.box, width=3, seed=seed).status is not Status.OUTSIDE_CLASS


def test_a_tolerance_that_answers_contradict_does_not_pass() -> None:
    for seed in range(3):
        head = unsoftmax.random_single_head(4, seed=seed)
        off = unsoftmax.WithinTolerance(unsoftmax.as_oracle(head), 3.5e-3, seed)
        assert not unsoftmax.recover(off, tolerance=1e-5, seed=seed).status.recovered


@pytest.mark.parametrize(
    "kind", ["bfloat16", "float16", "rounded to 2 decimals", "tolerance", "noise", "labels"]
)
def test_no_bound_behind_errors_is_below_what_the_answers_could_have_shown(kind: str) -> None:
    case = KINDS[f"answers: {kind}"](4, 1)
    result = unsoftmax.recover(case.box, width=4, seed=1)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert result.certificate is not None
    assert result.error_bound is not None
    assert 0.0 < result.certificate.resolution <= result.error_bound
    if kind == "bfloat16":  # elsewhere than beside zero, its numbers come through float32
        assert result.error_bound > 1e-9


@pytest.mark.parametrize("kind", ["tolerance", "noise", "rounded to 4 decimals"])
def test_no_bound_of_a_query_bias_behind_errors_is_below_what_they_show(kind: str) -> None:
    head = unsoftmax.random_single_head(4, seed=1, biases=True)
    _has_a_floor(unsoftmax.recover(ANSWERS[kind](unsoftmax.as_oracle(head), 1), seed=1))


@pytest.mark.parametrize("outputs", [None, 6])
def test_no_bound_of_several_heads_or_vectors_that_round_inside_is_below_what_they_show(
    outputs: int | None,
) -> None:
    layer = FloatLayer.scalar(random_layer(6, 2, 3), 3)
    layer = layer if outputs is None else replace(layer, readout=None)
    _has_a_floor(unsoftmax.recover(layer.ask, width=6, outputs=outputs, seed=3))


def test_no_bound_of_several_heads_behind_short_floats_is_below_what_they_show() -> None:
    case = KINDS["answers: float32, several heads"](4, 1)
    _has_a_floor(unsoftmax.recover(case.box, width=4, seed=1))


def _has_a_floor(result: unsoftmax.Result) -> None:
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert result.certificate is not None
    assert result.error_bound is not None
    assert 0.0 < result.certificate.resolution <= result.error_bound


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("d", [1, 2, 4])
def test_heads_whose_outputs_are_multiples_are_no_single_head(d: int, outputs: int) -> None:
    for seed in range(3):
        rng = np.random.default_rng([seed, d])
        V = rng.standard_normal((d, outputs))
        hidden = MultiHead(
            [SingleHead(rng.standard_normal((d, d)), part * V) for part in (1.0, 0.6)], np.zeros(outputs)
        )
        result = unsoftmax.recover(lambda X, h=hidden: h(X), width=d, outputs=outputs, seed=seed)
        assert result.status is not Status.OUTSIDE_CLASS, result.reason
        assert result.model is None or len(result.model.ranks) == 2


@pytest.mark.parametrize(("d", "seed"), [(2, 11), (6, 119)])
def test_rounding_of_a_faint_head_explains_no_deviation_of_the_answers(d: int, seed: int) -> None:
    case = KINDS["outside: a faint head changes"](d, seed)
    assert not unsoftmax.recover(case.box, width=d, seed=seed).status.recovered


@pytest.mark.parametrize(("d", "seed"), [(1, 125), (3, 125), (2, 5), (1, 13)])
def test_a_large_constant_excuses_no_other_w(d: int, seed: int) -> None:
    case = KINDS["outside: transformer with another W"](d, seed)
    assert not unsoftmax.recover(case.box, width=d, seed=seed).status.recovered


@pytest.mark.parametrize(
    ("kind", "d", "seed"),
    [
        ("transformer: large output bias", 1, 20005),  # the constant moved the line's unit
        ("transformer: large output bias", 1, 5017),  # W is known to 1.4e-7, the answers to 1e-9
        ("transformer: large output bias", 2, 5018),  # rounding of the constant looked like a tolerance
        ("network: Gaussian", 3, 5029),  # one neuron looks like answers that stop
        ("network: hard", 2, 6003),  # rows on which every neuron is off
    ],
)
def test_members_with_large_constants_or_flat_pieces_are_recovered(kind: str, d: int, seed: int) -> None:
    case = KINDS[kind](d, seed)
    result = unsoftmax.recover(case.box, width=d, seed=seed, **case.options)  # type: ignore[arg-type]
    assert result.status.recovered, result.reason
    assert result.error_bound is not None
    assert case.truth is not None
    assert case.truth.distance(result.unwrap()) <= result.error_bound


def test_bounds_see_how_close_heads_share_their_readouts_and_w_beside_a_large_bias() -> None:
    for kind, d, seed in (
        ("vector: as trained", 3, 1002),
        ("heads: low_rank", 3, 7),
        ("vector: as trained", 2, 7770039),  # the shortest rows that isolate a head all point one way
    ):
        case = KINDS[kind](d, seed)
        assert case.truth is not None
        told: dict[str, Any] = {"width": case.width, "seed": seed, **case.options}
        result = unsoftmax.recover(case.box, **told)
        assert result.status is Status.EXACT, result.reason
        assert result.error_bound is not None
        assert case.truth.distance(result.unwrap()) <= result.error_bound


def test_a_fit_that_runs_away_leaves_finite_rows() -> None:
    """The fit of this layer takes the eps of a norm out of the range of floats."""
    outcome = run(("language model: one layer", 4, 710003))
    assert not outcome.wrong, outcome.wrong


def test_several_heads_that_are_given_as_one_are_wrong() -> None:
    heads = unsoftmax.random_multi_head(1, 2, seed=9006)
    one = unsoftmax.recover(heads.heads[0], seed=0)
    given = replace(one, status=Status.WITHIN_BOUND, error_bound=1e-3)
    case = Case(heads, 1, heads, heads, exact=False, labels=True)
    assert "given as one" in what_is_wrong(case, given, 0.0)
    assert not what_is_wrong(replace(case, truth=MultiHead([heads.heads[0]] * 2)), given, 0.0)


@pytest.mark.parametrize(
    ("kind", "seed"), [("shape: nearly equal heads", 2100000), ("answers: float32, several heads", 3)]
)
def test_heads_that_hardly_show_are_left_open_and_not_refused(kind: str, seed: int) -> None:
    """On rows of norm 1, or of width 1, one head explains nearly all that two of them answer."""
    assert run((kind, 1, seed)).status == "UNRESOLVED"


def test_two_heads_of_width_2_that_pass_for_one_in_float32_are_recovered() -> None:
    """The first look sees two heads, and only fresh answers contradict the one that was learnt."""
    outcome = run(("answers: float32, several heads", 2, 5300001))
    assert (outcome.status, outcome.wrong) == ("WITHIN_BOUND", "")


def test_a_member_outside_the_class_is_wrong_whatever_its_parameters_tell() -> None:
    case = KINDS["shape: nearly equal heads"](1, 2100000)
    refused = unsoftmax.recover(lambda X: np.sin(X[:, -1, 0]) + X[:, 0, 0] ** 2, width=1, seed=0)
    assert refused.status is Status.OUTSIDE_CLASS, refused.reason
    assert "a member" in what_is_wrong(case, refused, 0.0)
    assert not what_is_wrong(replace(case, member=False), refused, 0.0)
