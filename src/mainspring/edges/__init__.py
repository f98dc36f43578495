"""Where requests enter and streams leave; no decisions."""
