"""What bad clients send, and what the robust rules make of it."""
