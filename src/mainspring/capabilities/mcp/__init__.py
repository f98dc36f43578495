"""A client of the Model Context Protocol, and the tools that servers offer to a session."""
