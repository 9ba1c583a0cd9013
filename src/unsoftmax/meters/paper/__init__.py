"""The measurements of arXiv 2601.16873 to the letter, one file per way to read a pair."""
