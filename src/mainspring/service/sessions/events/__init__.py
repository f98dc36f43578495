"""A session's events on the wire: received, rendered, paged and streamed."""
