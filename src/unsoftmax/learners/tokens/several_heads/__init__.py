"""Several heads over token ids."""
