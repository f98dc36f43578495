"""How the command line shows things: text, tables, events, Markdown, trees."""
