"""A user's script in a process of its own, with probes in its framework, and what they write down."""
