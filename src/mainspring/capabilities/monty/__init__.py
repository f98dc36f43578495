"""Generated Python at once: small programs in an interpreter that can reach nothing."""
