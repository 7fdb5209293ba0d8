"""Where samples come from: the embedded images, packed latents, tars, folders, safetensors."""

from tread_lab.data.source import Samples, open_data

__all__ = ["Samples", "open_data"]
