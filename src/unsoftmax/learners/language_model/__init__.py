"""What the log-probabilities of a language model tell about its parameters."""
