"""Constants, bounds and plans from the paper's theorems: floats only, no torch."""
