"""The protocol: messages, eras, the client."""
