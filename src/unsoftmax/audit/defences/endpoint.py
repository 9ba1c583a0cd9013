"""`defend` for language models: the endpoint with each setting, served on this machine, and what leaks of the
unembedding.

The attack is the first step of every other one, and works at any depth: d prompts of vectors give the
unembedding itself, prompts of token ids its column space. Honest users send token ids and read the
log-probabilities that they are told.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import rms
from unsoftmax.audit.defences.wrappers import honest_ids, number_of, parts_of
from unsoftmax.errors import UsageError
from unsoftmax.learners.language_model.token_prompts import ColumnSpace, TokenPromptLearner
from unsoftmax.learners.language_model.unembedding import Unembedding, UnembeddingLearner
from unsoftmax.ledger import Ledger
from unsoftmax.models import LanguageModel
from unsoftmax.models.language_model.distance import relative
from unsoftmax.oracles.http.completions import CompletionsOracle, completions_oracle
from unsoftmax.oracles.http.logit_bias import BiasShows
from unsoftmax.oracles.http.options import HttpOptions
from unsoftmax.outcomes import Status, Stop
from unsoftmax.serve.completions import CompletionsServer

__all__ = [
    "EndpointDefence",
    "EndpointRow",
    "advice_for",
    "attack_endpoint",
    "parsed_settings",
    "usual_settings",
    "with_rows_of_tokens",
]

_KINDS = ("token-ids", "top-k", "logit-bias", "decimals", "noise")
_FEW = 5  # log-probabilities an answer of many public servers
_LARGEST_BIAS, _SMALL_BIAS = 100.0, 2.0  # of public servers; one that lifts no unlikely token
_BATCH = 64  # prompts a request


@dataclass(frozen=True)
class EndpointDefence:
    """Pairs (kind, value): token-ids (no vectors as prompts), top-k (so many log-probabilities an answer),
    logit-bias (the most that requests may add; refused where it is not named), decimals, noise.

    >>> EndpointDefence.parse("token-ids+top-k=5+logit-bias=100").label
    'token ids only + the 5 largest log-probabilities + a logit bias of at most 100'
    """

    parts: tuple[tuple[str, float], ...] = ()

    @classmethod
    def parse(cls, text: str) -> EndpointDefence:
        """The defence of a text such as 'token-ids' or 'top-k=5+decimals=2'."""
        parts = []
        for kind, value in parts_of(text):
            if kind not in _KINDS:
                raise UsageError(
                    f"a language model has no defence {kind!r}; choose from {', '.join(_KINDS)}, joined by +"
                )
            parts.append((kind, 1.0 if kind == "token-ids" else number_of(kind, value)))
        return cls(tuple(parts))

    @property
    def label(self) -> str:
        """For people."""
        return " + ".join(_label(kind, value) for kind, value in self.parts) or "no defence"

    def served(self, model: LanguageModel, seed: int) -> CompletionsServer:
        """The model behind an endpoint with these settings."""
        chosen = dict(self.parts)
        bias = chosen.get("logit-bias")
        return CompletionsServer(
            model,
            embeddings="token-ids" not in chosen,
            max_logprobs=int(chosen.get("top-k", -1)),
            logit_bias=None if bias is None else BiasShows.IN_THE_ANSWERS,
            max_bias=bias or 0.0,
            decimals=None if "decimals" not in chosen else int(chosen["decimals"]),
            noise=chosen.get("noise", 0.0),
            seed=seed,
        )


def with_rows_of_tokens(model: LanguageModel, seed: int) -> LanguageModel:
    """The model as it is where it knows what its token ids stand for, else with random rows: vectors as
    prompts show no embedding, and what ids leak of the unembedding does not depend on which rows they are."""
    if model.embedding is not None:
        return model
    rows = np.random.default_rng([0xE4DB, seed]).standard_normal((model.outputs, model.width))
    return LanguageModel(model.layers, model.final_norm, model.unembedding, model.positions, rows)


def usual_settings() -> list[EndpointDefence]:
    """No defence, each setting, and the pairs that public servers have."""
    ids, few = ("token-ids", 1.0), ("top-k", float(_FEW))
    free, small = ("logit-bias", _LARGEST_BIAS), ("logit-bias", _SMALL_BIAS)
    rough: list[tuple[str, float]] = [("decimals", 4.0), ("decimals", 2.0), ("noise", 0.01)]
    return [
        EndpointDefence(),
        *(EndpointDefence((part,)) for part in rough),
        EndpointDefence((ids,)),
        *(EndpointDefence((ids, part)) for part in rough),
        *(EndpointDefence((ids, few, bias)) for bias in (free, small)),
        EndpointDefence((few,)),
        EndpointDefence((ids, few)),
    ]


@dataclass(frozen=True)
class EndpointRow:
    """How the attack on one setting ended. requests: all that were sent. error: of the unembedding, relative,
    up to what token prompts leave open; None where nothing was recovered. distortion: of the
    log-probabilities that honest users read, relative."""

    status: Status
    reason: str
    requests: int
    error: float | None
    error_bound: float | None
    distortion: float
    seconds: float


def attack_endpoint(model: LanguageModel, defence: EndpointDefence, seed: int) -> EndpointRow:
    """One row of the table."""
    started = time.perf_counter()
    with defence.served(model, seed) as server:
        oracle = completions_oracle(f"{server.target}&vocabulary={model.outputs}", HttpOptions(batch=_BATCH))
        distortion = _distortion(model, server, seed)
        asked = server.queries
        error, bound = None, None
        status, reason = Status.UNRESOLVED, " ".join(oracle.look.sentences)
        if oracle.look.readable:
            try:
                error, bound = _attack(oracle, model, seed)
                status, reason = Status.WITHIN_BOUND, "the unembedding leaks"
            except Stop as stop:
                status, reason = stop.status, stop.reason
        sent = server.queries - asked + oracle.look.requests
    return EndpointRow(status, reason, sent, error, bound, distortion, time.perf_counter() - started)


def _attack(oracle: CompletionsOracle, model: LanguageModel, seed: int) -> tuple[float, float]:
    """Error of the unembedding and its bound."""
    ledger, rng = Ledger(oracle), np.random.default_rng([0xE4D, seed])
    true = model.canonical().unembedding
    if oracle.look.embeddings:
        part = UnembeddingLearner().learn_part(ledger, rng)
        assert isinstance(part.value, Unembedding)
        return relative(part.value.matrix, true), part.error_bound
    space = TokenPromptLearner().learn_part(ledger, rng)
    assert isinstance(space.value, ColumnSpace)
    basis = space.value.basis
    return relative(basis @ (basis.T @ true), true), space.error_bound


def _distortion(model: LanguageModel, server: CompletionsServer, seed: int) -> float:
    """How far the log-probabilities that honest users are told are off, relative."""
    ids = honest_ids(model.outputs, None, seed)
    true = model(model.embed(ids))
    off, told = [], []
    for row, prompt in zip(true, ids, strict=True):
        for token, value in server.told(model.embed(prompt[None])[0]).items():
            off.append(value - row[token])
            told.append(row[token])
    return rms(np.array(off)) / (rms(np.array(told)) or 1.0)


def _label(kind: str, value: float) -> str:
    return {
        "token-ids": "token ids only",
        "top-k": f"the {value:.0f} largest log-probabilities",
        "logit-bias": f"a logit bias of at most {value:g}",
        "decimals": f"rounded to {value:.0f} decimal{'' if value == 1 else 's'}",
        "noise": f"random noise of {value:.3g}",
    }[kind]


def parsed_settings(defences: Sequence[object]) -> list[EndpointDefence]:
    """Texts and defences as defences."""
    return [
        each if isinstance(each, EndpointDefence) else EndpointDefence.parse(str(each)) for each in defences
    ]


def advice_for(ended: Sequence[tuple[EndpointDefence, int, float | None]]) -> str:
    """Sentences from the figures: (defence, requests, error of the unembedding) of every row."""
    vectors = [each for each in ended if "token-ids" not in dict(each[0].parts) and each[2] is not None]
    ids = [each for each in ended if "token-ids" in dict(each[0].parts) and each[2] is not None]
    closed = [defence for defence, _, error in ended if error is None]
    told = []
    if vectors:
        _, requests, _ = min(vectors, key=lambda each: each[1])
        worst, _, error = max(vectors, key=lambda each: each[2] or 0.0)
        told.append(
            f"Prompts of vectors give the unembedding itself in {requests:,} requests, and '{worst.label}' "
            f"leaves it known to {error:.1g}: take token ids only."
        )
    if ids:
        few, many = min(ids, key=lambda each: each[1]), max(ids, key=lambda each: each[1])
        told.append(
            f"Token ids still give the hidden width and the column space, in {few[1]:,} requests"
            + (f" ({many[1]:,} behind '{many[0].label}')." if many[1] > few[1] else ".")
        )
    if closed:
        told.append(
            "There is no attack here on "
            + ", ".join(f"'{defence.label}'" for defence in closed)
            + ", which is not evidence of safety."
        )
    return " ".join(told)
