"""What a sketch leaks: reconstruction in the sketch domain, and an audit."""
