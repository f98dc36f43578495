"""Bills that are shared: amounts are whole cents, so that nothing is ever rounded away."""
