"""SPRINT (Park et al. 2025): mask tokens replace routed ones, then both paths are fused."""
