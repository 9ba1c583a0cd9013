"""What a user may point at and tell: targets, rows and sequences of their own."""
