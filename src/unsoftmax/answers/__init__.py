"""What kind of answers a target gives, and how far each may be from the function's value."""
