"""Deep pre-norm stacks: all neurons from the collapsed layer, their order, then the whole."""
