"""Heads of causal attention from what attention adds to a row: poles, values, and rotary factors of
scores."""
