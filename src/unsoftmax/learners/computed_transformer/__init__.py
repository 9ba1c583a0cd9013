"""One-layer Transformers that compute in float32."""
