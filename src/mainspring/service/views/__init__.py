"""Views of logs for people: lists, changes, parts of a log. The dashboard is made of them."""
