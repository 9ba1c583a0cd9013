"""Pre-norm stacks of networks, any depth: one row in, the last stream out."""

from unsoftmax.models.residual_stack.model import ResidualStack, StackLayer
from unsoftmax.models.residual_stack.one_row import one_row_stack
from unsoftmax.models.residual_stack.random_stacks import random_residual_stack

__all__ = ["ResidualStack", "StackLayer", "one_row_stack", "random_residual_stack"]
