"""Scores of attention in front of a ReLU network."""
