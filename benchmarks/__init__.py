"""Every published figure has a script here. Each runs alone (`python -m benchmarks.NAME`) or all in turn
(`make bench`)."""
