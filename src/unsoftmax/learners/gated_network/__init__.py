"""Gated two-layer networks (SwiGLU, GEGLU) from their values."""
