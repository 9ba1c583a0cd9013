"""The theorems of the papers, to the letter."""
