"""Suites that come with Mainspring; `mainspring eval init NAME` writes one into an agent's folder.
Each case has a scripted model that passes it and one that fails it."""
