"""Tools: how functions become them, how they are wrapped, and the built-in ones."""
