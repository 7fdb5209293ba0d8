"""What a run, an evaluation and a sweep are: frozen data, strict decoding, signatures."""

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
from tread_lab.spec.routes import RouteSpec
from tread_lab.spec.run import (
    DataSpec,
    EDMSpec,
    FlowSpec,
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
    "EvaluationSpec",
    "FlowSpec",
    "GuidanceSpec",
    "HeldoutSpec",
    "ModelSpec",
    "ProcessSpec",
    "RateSpec",
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
