"""An agent as a person keeps it on disk: where its parts stand, what they say, what is odd."""
