"""Frames and codecs: how b numbers become bytes, and back, strictly."""
