"""Deep pre-norm models at large scale: what all sublayers write together, and in which order they read it."""
