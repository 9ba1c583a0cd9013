"""Two-layer ReLU networks with vector answers that may be asked inside a ball only."""
