"""Two-layer networks of single rows, their canonical forms and distances."""
