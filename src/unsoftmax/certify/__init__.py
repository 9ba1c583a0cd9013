"""Is it right: fresh queries, error bounds."""

from unsoftmax.certify.bounds import error_bound, left_open, rounding_in_answers, rounding_limit
from unsoftmax.certify.certificate import AnswersOff, Certificate, certify
from unsoftmax.certify.changed_models import usual_chances
from unsoftmax.certify.claimed_error import Shown, check_claim
from unsoftmax.certify.fresh_sequences import check_fresh_sequences
from unsoftmax.certify.recheck import REPLAY_TEST, confirm_target
from unsoftmax.certify.sharp_sequences import check_sharp_sequences

__all__ = [
    "REPLAY_TEST",
    "AnswersOff",
    "Certificate",
    "Shown",
    "certify",
    "check_claim",
    "check_fresh_sequences",
    "check_sharp_sequences",
    "confirm_target",
    "error_bound",
    "left_open",
    "rounding_in_answers",
    "rounding_limit",
    "usual_chances",
]
