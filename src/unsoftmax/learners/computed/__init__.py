"""Learners for layers whose arithmetic is short: every step inside rounds, not only the answer."""
