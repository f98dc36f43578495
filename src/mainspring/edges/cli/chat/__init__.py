"""The conversation at a terminal: its editor, its commands, its status line."""
