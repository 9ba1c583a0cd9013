"""What meters share: rows to ask, sizes, bisection."""
