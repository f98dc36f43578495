"""Composition root: the only package that names a store, a provider or a sandbox."""
