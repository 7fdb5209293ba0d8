"""Tables: a sweep's ranking, and the paper's published numbers."""
