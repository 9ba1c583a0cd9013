"""Scripts that run in the environment of another library."""
