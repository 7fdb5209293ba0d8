"""What a run, an evaluation and a sweep are: frozen data, strict decoding, signatures."""

from tread_lab.spec.bypass import MaskBypass, ReEntrySpec, RouteBypass, SprintBypass
from tread_lab.spec.decode import decode, encode
from tread_lab.spec.errors import UserError
from tread_lab.spec.evaluation import (
    EvaluationSpec,
    HeldoutSpec,
    SamplerSpec,
    SamplesSpec,
    SimilaritySpec,
)
from tread_lab.spec.guidance import BranchSpec, GuidanceSpec, RateSpec
from tread_lab.spec.loss import EnsembleLoss, PlainLoss
from tread_lab.spec.repa import RepaSpec
from tread_lab.spec.routes import RouteSpec
from tread_lab.spec.run import (
    DataSpec,
    EDMSpec,
    FlowSpec,
    InitSpec,
    ModelSpec,
    ProcessSpec,
    RunSpec,
    TrainSpec,
)
from tread_lab.spec.signature import signature

__all__ = [
    "BranchSpec",
    "DataSpec",
    "EDMSpec",
    "EnsembleLoss",
    "EvaluationSpec",
    "FlowSpec",
    "GuidanceSpec",
    "HeldoutSpec",
    "InitSpec",
    "MaskBypass",
    "ModelSpec",
    "PlainLoss",
    "ProcessSpec",
    "RateSpec",
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
