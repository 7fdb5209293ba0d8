"""Diffusion processes: what noise does to data, what is learned, what is integrated."""

from tread_lab.diffusion.edm import EDM
from tread_lab.diffusion.flow import Flow
from tread_lab.diffusion.process import Network, Outcome, Process
from tread_lab.spec.run import FlowSpec, ProcessSpec


def build_process(spec: ProcessSpec) -> Process:
    """The process of a spec: the only switch on its kind."""
    return Flow(spec) if isinstance(spec, FlowSpec) else EDM(spec)


__all__ = ["EDM", "Flow", "Network", "Outcome", "Process", "build_process"]
