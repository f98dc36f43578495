"""Python functions as tools, and Python types as JSON Schema."""
