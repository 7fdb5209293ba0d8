"""The phases of `benchmarks/gpu.py`; each is a function of a `Bench`."""
