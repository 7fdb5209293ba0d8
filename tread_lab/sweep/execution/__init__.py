"""What carries tasks out: in this process or on Ray, with early stopping and heartbeats."""
