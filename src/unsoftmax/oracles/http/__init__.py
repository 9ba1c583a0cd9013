"""Targets behind a web address: the Open Inference Protocol, and any JSON endpoint by two templates."""

from unsoftmax.oracles.http.options import HttpOptions
from unsoftmax.oracles.http.oracle import HttpOracle, http_oracle
from unsoftmax.oracles.http.sender import Sender

__all__ = ["HttpOptions", "HttpOracle", "Sender", "http_oracle"]
