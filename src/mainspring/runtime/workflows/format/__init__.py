"""The format of workflow files: read, checked by itself, drawn."""
