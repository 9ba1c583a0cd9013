"""Whole encoder blocks that compute in float32."""
