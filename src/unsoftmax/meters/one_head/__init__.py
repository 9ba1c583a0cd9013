"""The score of one head, by the kind of answers."""
