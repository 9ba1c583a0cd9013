"""Parts of the ReLU network learner: a half circle, its kinks, the gradients between them, repair, polish,
leftovers."""
