"""The store contract, one file a theme: every public function is a case."""
