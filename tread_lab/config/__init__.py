"""What a run, an evaluation and a sweep are: frozen data, strict decoding, signatures."""

from tread_lab.config.data import DataSpec
from tread_lab.config.decode import decode, encode
from tread_lab.config.errors import UserError
from tread_lab.config.evaluation import (
    EvaluationSpec,
    HeldoutSpec,
    SamplerSpec,
    SamplesSpec,
    SimilaritySpec,
)
from tread_lab.config.guidance import GuidanceSpec
from tread_lab.config.model import ModelSpec
from tread_lab.config.recipe import DDPMSpec, EDMSpec, EnsembleLoss, FlowSpec, PlainLoss, TrainSpec
from tread_lab.config.routes import ReEntrySpec, RouteSpec
from tread_lab.config.run import RunSpec
from tread_lab.config.signature import signature

__all__ = [
    "DataSpec",
    "DDPMSpec",
    "EDMSpec",
    "EnsembleLoss",
    "EvaluationSpec",
    "FlowSpec",
    "GuidanceSpec",
    "HeldoutSpec",
    "ModelSpec",
    "PlainLoss",
    "ReEntrySpec",
    "RouteSpec",
    "RunSpec",
    "SamplerSpec",
    "SamplesSpec",
    "SimilaritySpec",
    "TrainSpec",
    "UserError",
    "decode",
    "encode",
    "signature",
]
