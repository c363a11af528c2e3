"""Algorithms 1 and 2; start with ``rounds.py``."""
