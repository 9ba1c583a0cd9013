"""Nonlinear least squares: problems that linearise themselves, and their joint refinement."""
