"""What a session can reach: models, tools, sandboxes. Siblings do not import each other."""
