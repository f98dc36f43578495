"""An agent as a folder on disk: its parts, the plugins it uses, its versions, and its
validation."""
