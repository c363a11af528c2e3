"""What a sketch leaks: reconstruction in the sketch domain, and an audit.

Read in this order: `update` (G, what a client computes), `objective` (L_R, what the attacker minimises), `solvers` and
`optimise` (how), `bounds` (what nobody can beat), `landscape` and `promises` (the paper's theorems), `audit`.
"""
