"""From noise to images: solvers, guidance, generation."""
