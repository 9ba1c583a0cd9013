"""The measurements of arXiv 2601.16873 to the letter, one file a way to read a pair."""
