"""Tables: the paper's published numbers, and a sweep's own like them."""
