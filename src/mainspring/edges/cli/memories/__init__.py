"""Commands about memories, knowledge and dreams."""
