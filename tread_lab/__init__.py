"""tread-lab: what does token routing do to diffusion training, where, and at what cost?"""

__version__ = "0.2.0"
