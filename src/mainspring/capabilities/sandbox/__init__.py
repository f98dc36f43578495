"""Runs programs in a sandbox: isolated by the kernel, within limits, each exactly once."""
