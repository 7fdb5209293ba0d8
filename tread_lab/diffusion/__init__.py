"""Diffusion processes: what noise does to data, what is learned, what is integrated."""

from tread_lab.diffusion.ddpm import DDPM
from tread_lab.diffusion.edm import EDM
from tread_lab.diffusion.flow import Flow
from tread_lab.diffusion.process import LossTerms, Network, Process
from tread_lab.diffusion.processes import build_process

__all__ = ["DDPM", "EDM", "Flow", "Network", "LossTerms", "Process", "build_process"]
