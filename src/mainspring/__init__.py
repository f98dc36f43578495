"""Mainspring's public API; everything else is internal."""

__version__ = "0.1.0"
