"""Two-layer networks with a smooth activation from their values."""
