"""Figures and tables from the records of a sweep; never imports torch."""
