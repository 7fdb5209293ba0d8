"""REPA (Yu et al. 2025): the tokens of a block are drawn towards a frozen encoder's features."""
