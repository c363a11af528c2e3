"""Theorems against experiments: Algorithm 1 on problems whose constants are known, in mathematics and as shipped."""
