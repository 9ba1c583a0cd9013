"""Targets that speak the Open Inference Protocol over gRPC."""

from unsoftmax.oracles.grpc.oracle import GrpcOracle, grpc_oracle

__all__ = ["GrpcOracle", "grpc_oracle"]
