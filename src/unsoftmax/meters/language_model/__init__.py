"""Answers of a decoder to its hidden states, network values and attention outputs."""
