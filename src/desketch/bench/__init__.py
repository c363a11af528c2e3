"""What the shipped code costs, in CPU time, beside peers and beside the physical limit, measured in one run."""
