"""Scores and values of tokens from answers to sequences of ids."""
