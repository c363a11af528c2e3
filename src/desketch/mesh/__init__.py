"""Algorithm 1 without a server: neighbours only."""
