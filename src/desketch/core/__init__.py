"""What every room needs: a module as one vector, batches of any shape, durable files."""
