"""Where requests enter over HTTP and streams leave; no decisions."""
