"""Two-layer ReLU networks that compute in float32."""
