"""Backbones: networks of equal blocks, which all walk their blocks by the same loop."""

from tread_lab.backbones.build import BACKBONES, build_backbone

__all__ = ["BACKBONES", "build_backbone"]
