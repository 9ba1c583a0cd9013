"""One head over token ids with learned positions."""
