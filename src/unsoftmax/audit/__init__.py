"""The whole job, and what people see of it."""
