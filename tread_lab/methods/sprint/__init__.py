"""SPRINT (Park et al. 2025): mask tokens stand in for routed ones, then both paths are fused."""
