"""Which task comes next: queues, budgets, and a sampler that chooses cells."""
