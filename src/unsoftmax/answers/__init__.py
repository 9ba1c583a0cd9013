"""What kind of answers a target gives, and how far each may be from the function's value."""

from unsoftmax.answers.findings import IDENTIFY, Finding, Seen, Subject
from unsoftmax.answers.identify import Identified, identify
from unsoftmax.answers.kinds import (
    Answers,
    Clipped,
    Computed,
    Constant,
    Exact,
    Labels,
    Noisy,
    Rounded,
    Stored,
    Unsteady,
    Within,
    limits_in_words,
    votes_needed,
)
from unsoftmax.answers.looks_exact import LooksExact, looks_exact
from unsoftmax.answers.short_noise import ask_longest_row

__all__ = [
    "IDENTIFY",
    "Answers",
    "Clipped",
    "Computed",
    "Constant",
    "Exact",
    "Finding",
    "Identified",
    "Labels",
    "LooksExact",
    "Noisy",
    "Rounded",
    "Seen",
    "Stored",
    "Subject",
    "Unsteady",
    "Within",
    "ask_longest_row",
    "identify",
    "limits_in_words",
    "looks_exact",
    "votes_needed",
]
