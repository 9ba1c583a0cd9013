"""Layers of a deep stack from its collapsed layer."""
