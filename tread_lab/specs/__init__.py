"""What a run, an evaluation and a sweep are: frozen data, strict decoding, signatures."""

from tread_lab.specs.data import DataSpec
from tread_lab.specs.decode import decode, encode
from tread_lab.specs.errors import UserError
from tread_lab.specs.evaluation import (
    EvaluationSpec,
    HeldoutSpec,
    SamplerSpec,
    SamplesSpec,
    SimilaritySpec,
)
from tread_lab.specs.guidance import GuidanceSpec
from tread_lab.specs.model import ModelSpec
from tread_lab.specs.recipe import DDPMSpec, EDMSpec, EnsembleLoss, FlowSpec, PlainLoss, TrainSpec
from tread_lab.specs.routes import ReEntrySpec, RouteSpec
from tread_lab.specs.run import RunSpec
from tread_lab.specs.signature import signature

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
