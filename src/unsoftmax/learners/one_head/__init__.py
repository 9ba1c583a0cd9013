"""One head, by the kind of answers."""
