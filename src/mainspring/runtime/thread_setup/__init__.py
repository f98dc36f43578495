"""Sets up a thread: its policy, its paths, the plan of its sandbox, its tools, and its toolbox, in
this order. `wiring` fills the ports that name implementations."""
