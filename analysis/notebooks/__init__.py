"""The notebooks of the paper's figures, and what runs them."""
