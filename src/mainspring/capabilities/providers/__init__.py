"""Models: each adapter translates requests and replies to and from one wire format."""
