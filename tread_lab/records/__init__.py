"""What a run leaves behind, and where."""
