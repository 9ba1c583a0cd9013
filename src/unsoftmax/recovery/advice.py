"""Why did it end like this, and what should be tried next? One paragraph for people, from what was found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from unsoftmax.answers import Answers, Computed, Constant, Finding, Seen, Stored, Subject, Unsteady
from unsoftmax.families import Family
from unsoftmax.float_formats import FloatFormat
from unsoftmax.outcomes import Status

if TYPE_CHECKING:
    from unsoftmax.recovery.result import Result

__all__ = ["CLOSED_ENDPOINT", "advice_for", "causes_of"]

_CAUSES = {  # a finding: what usually makes it so, and what to try
    (Subject.RANGE, Seen.PROBABILITIES): (
        "All answers lie between 0 and 1, as probabilities do. If a sigmoid or a softmax makes them, pass "
        "probabilities, and the model of their logits is recovered."
    ),
    (Subject.RANGE, Seen.CLASSES): (
        "All answers are a few whole numbers, as the classes of an argmax are. One head is recovered from "
        "two classes. Of more classes ask for the logits, or for probabilities (and pass probabilities)."
    ),
    (Subject.REPEATABILITY, Seen.RANDOM): (
        "The same sequence is answered differently each time. Switch dropout and sampling off "
        "(`module.eval()`), or ask a target without added noise."
    ),
    (Subject.BATCHES, Seen.MATTER): (
        "The other sequences of a batch change the answer. A target that takes the rows first, (N, B, d), as "
        "torch modules with batch_first=False do, attends over the batch: put a function around it that "
        "swaps the first two axes of rows and of answers. A norm over the batch is switched off by "
        "`module.eval()`."
    ),
    (Subject.ORDER, Seen.MATTERS): (
        "The order of rows matters, as with positional encodings, a causal mask over several layers, or if "
        "the first row asks. Ask the layer behind the positions and read its last row, or pass vocabulary=V "
        "if the target takes token ids."
    ),
    (Subject.ASKING, Seen.ALIKE): (
        "All rows count alike, the last one too, so the target takes a mean or a maximum over the outputs of "
        "all rows. Attention in front of that is not recovered. Ask for the output at one row: pass "
        "row='last' if the target can answer every row."
    ),
    (Subject.COPIES, Seen.COUNT): (
        "Copies of rows change the answer, as with sums, lengths or pooling over "
        "positions. If the target answers every row, pass row='last' instead of a mean."
    ),
}
_UNSTEADY = (
    "Answers change from call to call. Switch dropout off (`module.eval()`), and check that an answer does "
    "not depend on the other sequences of its batch."
)
_CONSTANT = (
    "All single rows are answered alike. Check that the target reads its input, and that the readout is not "
    "zero."
)
_CURVED = (
    "The answer to a single row is not linear in that row, so there is a network or a norm around the "
    "attention (a ReLU network on top would have been recognised). If the target can answer with vectors, "
    "pass outputs=m: whole encoder blocks can be recovered from vectors. If the target is a network that "
    "reads one row, without attention, use `unsoftmax.recover_network`."
)
_NOT_SAFE = "That nothing was recovered does not mean that the target is safe."
_GENERAL = {
    Status.NOT_IDENTIFIABLE: (
        "There is nothing to try: other parameters give the same answers to every input, so no query can "
        "tell them apart. What can be seen is named above."
    ),
    Status.BUDGET_SPENT: (
        "The budget is spent. Run again with a larger budget. If the run had a ledger (ledger=PATH), use the "
        "same one: its answers are not paid again. `unsoftmax plan` says what a recovery takes."
    ),
    Status.OUTSIDE_CLASS: (
        "The target failed a test that every supported model passes; that does not mean that it is safe. "
        "Make sure that you ask a single layer, in evaluation mode, with rows of numbers, and that you read "
        "its last row, not a mean or maximum over rows. If you know the family, pass family=NAME: the "
        "reason then names the property that is missing."
    ),
    Status.UNRESOLVED: (
        "The target may belong to a supported family, but these answers do not determine it well enough. "
        "Try, in this order: longer rows (a larger input_bound, if there is one); finer answers (more "
        "digits, float64, no clipping); another seed; family=NAME, if you know the family."
    ),
}
_TOKENS = {
    Status.OUTSIDE_CLASS: (
        "The target failed a test that attention over token ids passes; that does not mean that it is safe. "
        "If it puts tokens of its own around a sequence, such as CLS and SEP, cut the first and the last id "
        "off in a function around it, and pass prefix=[ID] and suffix=[ID]. If it answers with a mean over "
        "all tokens, ask for the answer at the last one. With a residual connection or a network on top, ask "
        "the layer itself with rows of numbers."
    ),
    Status.UNRESOLVED: (
        "The target may be attention over token ids, but these answers do not determine it well enough. "
        "Try, in this order: answers in float64 (`module.double()`); longer sequences (longest=N); another "
        "seed."
    ),
}
_LANGUAGE = (
    "Do not accept prompts of vectors from untrusted clients: with them the unembedding itself leaks, and "
    "not only its column space. Return few log-probabilities, and accept no logit bias with them, or only "
    "one of a few units. Rounding and noise limit how precise a leak is; they do not prevent it."
)
CLOSED_ENDPOINT = (
    "The endpoint reveals too little for the attacks of this tool; that is not proof of safety. Ask a copy "
    "with other settings (all log-probabilities, a logit bias, prompts of vectors) to see what those would "
    "leak."
)
_EXACT_ONLY = {
    str(Family.MULTI_HEAD): "several heads",
    str(Family.TRANSFORMER): "a network on top of attention",
}


def advice_for(result: Result) -> str:
    """The paragraph.

    >>> import unsoftmax
    >>> unsoftmax.recover(lambda X: X[:, -1, 0] ** 3, width=2).advice[:43]
    'The answer to a single row is not linear in'
    """
    if result.family == Family.LANGUAGE_MODEL.value and result.status is not Status.BUDGET_SPENT:
        if result.status is Status.OUTSIDE_CLASS and not result.parts:
            return _NOT_SAFE
        return _LANGUAGE if result.parts else CLOSED_ENDPOINT
    if result.status.recovered:
        return (
            "Keep the model (`save`), compare it with the original (`unsoftmax compare`), or see what would "
            "have stopped the recovery (`unsoftmax defend`)."
        )
    if result.status in (Status.NOT_IDENTIFIABLE, Status.BUDGET_SPENT):
        return _GENERAL[result.status]
    if result.family == Family.TOKENS.value:
        return _TOKENS[result.status]
    causes = causes_of(result.findings, result.answers, vectors=result.vectors)
    if result.parts:
        names = ", ".join(result.parts)
        causes.insert(0, f"The whole was not recovered, but parts of it were ({names}); see `result.parts`.")
    if not causes or result.parts:
        causes.append(_GENERAL[result.status])
    elif result.status is Status.OUTSIDE_CLASS:
        causes.append(_NOT_SAFE)
    return " ".join(causes)


def causes_of(findings: Iterable[Finding], answers: Answers | None, *, vectors: bool) -> list[str]:
    """What findings explain of a failure: a sentence or two for each cause, with what to try."""
    found = {finding.subject: finding.value for finding in findings}
    causes = [text for (subject, value), text in _CAUSES.items() if found.get(subject) == value]
    match answers:
        case Unsteady():
            causes.append(_UNSTEADY)
        case Constant():
            causes.append(_CONSTANT)
    if found.get(Subject.SINGLE_ROWS) == Seen.CURVED and not vectors:
        causes.append(_CURVED)
    family = found.get(Subject.FAMILY)
    if family is not None and family in _EXACT_ONLY and _rough(answers):
        causes.append(
            f"The target looks like {_EXACT_ONLY[family]}, and its answers are {found[Subject.ANSWERS]}. "
            "That family is recovered from exact answers or float32 arithmetic (several heads also from "
            "bfloat16 and float16 arithmetic); one head can be recovered from answers like these."
        )
    return causes


def _rough(answers: Answers | None) -> bool:
    """Whether answers carry errors that only learners for one head allow."""
    if isinstance(answers, Stored | Computed):
        return answers.format is not FloatFormat.FLOAT32
    return answers is not None and not answers.exact and not isinstance(answers, Unsteady)
