"""Parties in different processes: what they agree on and say to each other, whatever carries the bytes."""
