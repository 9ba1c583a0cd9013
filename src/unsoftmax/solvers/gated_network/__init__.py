"""Neurons down·(silu(gate·n)·(up·n)) from second and first derivatives at points of one circle."""
