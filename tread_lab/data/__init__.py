"""Where samples come from: the embedded images, packed latents, or tars of latents."""

from tread_lab.data.source import Samples, open_data

__all__ = ["Samples", "open_data"]
