"""What users would pick instead, in the same engine with the same byte counting."""
