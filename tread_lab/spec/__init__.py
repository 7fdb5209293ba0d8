"""What a run, an evaluation and a sweep are: frozen data, strict decoding, signatures."""

from tread_lab.spec.bypass import MaskBypass, ReEntrySpec, RouteBypass, SprintBypass
from tread_lab.spec.decode import decode, encode
from tread_lab.spec.errors import UserError
from tread_lab.spec.evaluation import (
    EvaluationSpec,
    GuidanceSpec,
    HeldoutSpec,
    SamplerSpec,
    SamplesSpec,
    SimilaritySpec,
)
from tread_lab.spec.loss import EnsembleLoss, PlainLoss
from tread_lab.spec.repa import RepaSpec
from tread_lab.spec.routes import RouteSpec
from tread_lab.spec.run import (
    DataSpec,
    EDMSpec,
    InitSpec,
    ModelSpec,
    ProcessSpec,
    RunSpec,
    TrainSpec,
)
from tread_lab.spec.signature import signature

__all__ = [
    "DataSpec",
    "EDMSpec",
    "EnsembleLoss",
    "EvaluationSpec",
    "GuidanceSpec",
    "HeldoutSpec",
    "InitSpec",
    "MaskBypass",
    "ModelSpec",
    "PlainLoss",
    "ProcessSpec",
    "ReEntrySpec",
    "RepaSpec",
    "RouteBypass",
    "RouteSpec",
    "RunSpec",
    "SamplerSpec",
    "SamplesSpec",
    "SimilaritySpec",
    "SprintBypass",
    "TrainSpec",
    "UserError",
    "decode",
    "encode",
    "signature",
]
