"""Whole encoder blocks from the answers of their last row."""
