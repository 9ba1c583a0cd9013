"""Models from and to the formats of others: torch modules, ONNX graphs, numpy archives."""
