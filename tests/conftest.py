"""Hypothesis draws the same examples every time and has no clock: a busy machine is not a failure."""

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None, database=None)
settings.load_profile("steady")
