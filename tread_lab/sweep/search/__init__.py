"""Which task comes next: queues, hours, and a sampler that chooses cells."""
