"""MDT (Gao et al. 2023): masked latent modelling with a side-interpolater and a dense pass."""
