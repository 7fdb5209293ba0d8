"""SD-DiT (Zhu et al. 2024): self-distillation of a masked encoder by the average of itself."""
