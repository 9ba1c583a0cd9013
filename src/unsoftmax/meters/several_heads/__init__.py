"""The score of one head of several."""
