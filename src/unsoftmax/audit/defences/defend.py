"""`defend`: the same attack against a target behind each defence, in a pool of processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import cast

import numpy as np

from unsoftmax.arrays import Array, read_npy
from unsoftmax.audit.defences.adapted_attack import attack_adapted
from unsoftmax.audit.defences.endpoint import (
    advice_for,
    attack_endpoint,
    parsed_settings,
    usual_settings,
    with_rows_of_tokens,
)
from unsoftmax.audit.defences.similar_neurons import with_similar_neurons
from unsoftmax.audit.defences.table import DefenceRow, Defences
from unsoftmax.audit.defences.wrappers import (
    Defence,
    DefenceKind,
    bounds_on_rows,
    honest_ids,
    honest_sequences,
    usual_defences,
)
from unsoftmax.child_processes import WorkerPool
from unsoftmax.errors import UsageError
from unsoftmax.models import (
    LanguageModel,
    Model,
    MultiHead,
    ResidualStack,
    SingleHead,
    TokenHeads,
    Transformer,
    load,
)
from unsoftmax.oracles import TokenIds
from unsoftmax.outcomes import Status
from unsoftmax.recovery.inputs.targets import as_oracle, demo_model

__all__ = ["attack", "defend", "errors_of", "model_of", "read_sequences"]

_ROWS = 3  # without so many rows in a sequence there is no attack here
_LEAVE_ANSWERS = frozenset(
    (
        DefenceKind.INPUT_BOUND,
        DefenceKind.MAX_LENGTH,
        DefenceKind.BUDGET,
        DefenceKind.ACCOUNTS,
        DefenceKind.PRADA,
        DefenceKind.STRUCTURED_ROWS,
        DefenceKind.SIMILAR_NEURONS,
    )
)
_DETECTED = 500  # parameters up to which detectors are tried unasked: getting around one takes many queries
_MOST = 400  # queries a parameter after which an attack on a defence is given up


def defend(
    target: object,
    *,
    defences: Sequence[Defence | str] | None = None,
    sequences: Array | None = None,
    seed: int = 0,
    workers: int = 1,
    stand_in: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> Defences:
    """Attacks a model behind each defence and measures what honest users would pay.

    target: a model, 'demo:...' or a model file. defences: None for the usual ones and their pairs. sequences:
    honest inputs (B, N, d), or ids (B, N); None for standard normal rows, or ids drawn as words occur.
    workers: processes. stand_in: only noted, for reports. progress: called with (done, all, label).

    >>> import unsoftmax
    >>> table = unsoftmax.defend("demo:single-head?d=4", defences=["tolerance=0.01",
    ...     "tolerance=0.01+input-bound=5"])
    >>> [row.parameter_error > 1e-6 for row in table.rows]
    [False, True]
    """
    model = target if isinstance(target, Model) else model_of(target)
    if isinstance(model, LanguageModel):
        return _defend_endpoint(model, defences, seed, stand_in, progress)
    if model.outputs is not None and not isinstance(model, ResidualStack):
        raise UsageError(
            f"the model answers with {model.outputs} numbers a query; defend one of them, or a weighted sum"
        )
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UsageError(f"seed must be a whole number >= 0, not {seed!r}")
    if workers < 1:
        raise UsageError(f"workers must be at least 1, not {workers!r}")
    honest, told = _honest(model, sequences, seed)
    chosen = _usual(model, honest, detectors=not stand_in) if defences is None else _parsed(defences)
    if isinstance(model, TokenHeads) and any(defence.detects for defence in chosen):
        raise UsageError("detectors watch rows of numbers, and this model takes token ids; leave them out")
    jobs = [(model, defence, honest, seed) for defence in chosen]
    rows: dict[int, DefenceRow] = {}
    for index, row in _run(jobs, workers):
        rows[index] = row
        if progress is not None:
            progress(len(rows), len(jobs), row.label)
    of = "tokens" if isinstance(model, TokenHeads) else "rows"
    words = f"{len(honest)} sequences of {honest.shape[1]} {of}, {told}"
    return Defences(tuple(rows[i] for i in range(len(jobs))), model.parameters, words, stand_in, seed)


def _defend_endpoint(
    model: LanguageModel,
    defences: Sequence[Defence | str] | None,
    seed: int,
    stand_in: bool,
    progress: Callable[[int, int, str], None] | None,
) -> Defences:
    """The settings of an endpoint, which are what defends a language model."""
    chosen = usual_settings() if defences is None else parsed_settings(defences)
    served, rows = with_rows_of_tokens(model, seed), []
    for defence in chosen:
        ended = attack_endpoint(served, defence, seed)
        rows.append(
            DefenceRow(
                label=defence.label,
                parts=defence.parts,
                status=str(ended.status),
                reason=ended.reason,
                queries=ended.requests,
                parameter_error=ended.error,
                functional_error=None,
                error_bound=ended.error_bound,
                distortion=ended.distortion,
                refused=0.0,
                seconds=ended.seconds,
                attacked=ended.error is not None,
            )
        )
        if progress is not None:
            progress(len(rows), len(chosen), defence.label)
    said = advice_for(
        [(defence, row.queries, row.parameter_error) for defence, row in zip(chosen, rows, strict=True)]
    )
    words = "prompts of 8 token ids, drawn as words occur; errors are those of the unembedding"
    if served is not model:
        words += "; the embedding is not known, and random rows stand in for it"
    return Defences(tuple(rows), model.parameters, words, stand_in, seed, said)


def _usual(model: Model, honest: Array, *, detectors: bool) -> list[Defence]:
    """The usual defences of such a model. detectors: whether they are tried where the model is small."""
    if isinstance(model, ResidualStack):
        return bounds_on_rows(honest)
    small = model.parameters <= _DETECTED and not isinstance(model, TokenHeads)
    chosen = usual_defences(honest, model(honest), model.parameters, detectors=detectors and small)
    if isinstance(model, Transformer):
        chosen.append(Defence(((DefenceKind.SIMILAR_NEURONS, 0.9),)))
    return chosen


def model_of(target: object) -> Model:
    """The model of a demo target or of a file; anything else has to be recovered first."""
    text = str(target)
    if text.startswith("demo:"):
        return demo_model(text)
    if text.endswith(".safetensors"):
        return load(text)
    raise UsageError(
        f"{text!r} shows its answers only; recover it first (unsoftmax recover ... --out DIR) and give the "
        "recovered model"
    )


def attack(model: Model, defence: Defence, honest: Array, seed: int) -> DefenceRow:
    """One row of the table."""
    started = time.perf_counter()
    budget = _MOST * max(model.parameters, 100)
    deployed = model
    if defence.similarity is not None:
        deployed = with_similar_neurons(model, defence.similarity, honest)
    distortion, refused = defence.price_for_users(as_oracle(deployed), honest, seed)
    if deployed is not model:
        distortion = max(distortion, _moved(model, deployed, honest))
    ended = attack_adapted(as_oracle(deployed), defence, honest, seed, budget)
    result = ended.result
    if result is None:  # the attack sent something that the defence refuses, and has no other way
        return DefenceRow(
            label=defence.label,
            parts=defence.parts,
            status="REFUSED",
            reason=ended.why,
            queries=ended.sent,
            parameter_error=None,
            functional_error=None,
            error_bound=None,
            distortion=distortion,
            refused=refused,
            seconds=time.perf_counter() - started,
            attacked=defence.detects,
            adapted=ended.how,
        )
    off, wrong = (
        (None, None)
        if result.model is None
        else errors_of(deployed, result.model, honest, labels=DefenceKind.LABELS in dict(defence.parts))
    )
    return DefenceRow(
        label=defence.label,
        parts=defence.parts,
        status=str(result.status),
        reason=result.reason,
        queries=ended.sent,
        parameter_error=off,
        functional_error=wrong,
        error_bound=result.error_bound,
        distortion=distortion,
        refused=refused,
        seconds=time.perf_counter() - started,
        attacked=result.model is not None
        or (_attackable(deployed, defence) and result.status is not Status.OUTSIDE_CLASS),
        adapted=ended.how,
    )


def _moved(model: Model, deployed: Model, honest: Array) -> float:
    """How far honest answers of the deployed model are from those of the original, relative."""
    true = model(honest)
    size = float(np.sqrt(np.mean(true**2))) or 1.0
    return float(np.sqrt(np.mean((deployed(honest) - true) ** 2))) / size


def errors_of(true: Model, found: Model, honest: Array, *, labels: bool = False) -> tuple[float, float]:
    """Relative error of the parameters, and of the answers to honest sequences; with labels the scale of the
    answers is free."""
    if isinstance(true, SingleHead) and isinstance(found, MultiHead):
        true = MultiHead([true])
    elif isinstance(true, MultiHead) and isinstance(found, SingleHead):
        found = MultiHead([found])
    if labels and isinstance(true, SingleHead) and isinstance(found, SingleHead):
        scale = float(np.linalg.norm(true.v)) / (float(np.linalg.norm(found.v)) or 1.0)
        found = SingleHead(found.matrix, scale * found.v, found.w0, scale * np.asarray(found.c))
    expected, got = true(honest), found(honest)
    size = float(np.sqrt(np.mean(expected**2))) or 1.0
    wrong = float(np.sqrt(np.mean((expected - got) ** 2))) / size
    return (true.distance(found) if type(true) is type(found) else 1.0), wrong


def _attackable(model: Model, defence: Defence) -> bool:
    """Answers with errors are only read for one head, short floats and labels only for one without biases;
    exact answers for every family."""
    kinds = {kind for kind, _ in defence.parts}
    if (defence.number(DefenceKind.MAX_LENGTH) or _ROWS) < _ROWS:
        return False
    if kinds <= _LEAVE_ANSWERS:
        return True
    if isinstance(model, TokenHeads):
        return kinds <= {DefenceKind.PRECISION, DefenceKind.MAX_LENGTH, DefenceKind.BUDGET}
    if not isinstance(model, SingleHead):
        return False
    biased = bool(np.any(model.c)) or (model.w0 is not None and bool(model.w0.any()))
    return not (biased and kinds & {DefenceKind.PRECISION, DefenceKind.LABELS})


def _run(jobs: list[tuple[Model, Defence, Array, int]], workers: int) -> Iterator[tuple[int, DefenceRow]]:
    if workers == 1 or len(jobs) == 1:
        for index, job in enumerate(jobs):
            yield index, attack(*job)
        return
    with WorkerPool(min(workers, len(jobs))) as pool:
        waiting = {pool.submit(attack, *job): index for index, job in enumerate(jobs)}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def _parsed(defences: Sequence[Defence | str]) -> list[Defence]:
    return [Defence.parse(each) if isinstance(each, str) else each for each in defences]


def _honest(model: Model, sequences: Array | None, seed: int) -> tuple[Array, str]:
    """What honest users send, and where it comes from."""
    if isinstance(model, TokenHeads):
        if sequences is None:
            return cast(Array, honest_ids(model.vocabulary, model.longest, seed)), "drawn as words occur"
        return TokenIds(model.vocabulary).checked(sequences), "given"
    if sequences is None:
        return honest_sequences(model.width, seed), "generated: standard normal rows"
    return _checked(sequences, model.width), "given"


def _checked(sequences: Array, width: int) -> Array:
    array = np.asarray(sequences, dtype=np.float64)
    if array.ndim != 3 or array.shape[2] != width or not len(array) or not np.isfinite(array).all():
        raise UsageError(f"honest sequences must be finite numbers (B, N, {width}), not {array.shape}")
    return array


def read_sequences(path: Path) -> Array:
    """Honest sequences (B, N, d) from a .npy file."""
    try:
        found = read_npy(path)
        return np.asarray(found, dtype=np.int64 if np.issubdtype(found.dtype, np.integer) else np.float64)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read sequences from {path}: {error}; save an array (B, N, d) with numpy.save"
        ) from error
