"""Attention over token ids."""
