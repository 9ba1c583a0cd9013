"""Model files: what is written, and what is asked before anything of a file is read."""
