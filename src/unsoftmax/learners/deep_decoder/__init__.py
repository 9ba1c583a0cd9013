"""Whole decoders of several layers: one-row part, heads of all layers, then all together."""
