"""Reproduce the paper, sweep over grids, and spread work over processes or a Dask cluster."""
