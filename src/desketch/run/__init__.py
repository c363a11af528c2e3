"""What a run leaves on disk, and how it goes on from there."""
