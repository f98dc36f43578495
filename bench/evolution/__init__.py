"""Adapters between the public worlds of `../shared/bench/evolve` and the classes that `mainspring
evolve` drives. They translate texts and results, and decide nothing."""
