"""Several heads fitted to answers, all parameters at once."""
