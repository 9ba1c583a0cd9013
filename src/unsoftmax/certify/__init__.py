"""Is it right: fresh queries, error bounds."""

from unsoftmax.certify.bounds import error_bound, rounding_limit
from unsoftmax.certify.certificate import Certificate, certify

__all__ = ["Certificate", "certify", "error_bound", "rounding_limit"]
