"""MaskDiT (Zheng et al. 2024): all blocks see the kept tokens, a light decoder all places."""
