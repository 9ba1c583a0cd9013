"""What a target is, from cheap tests."""
