"""What a run, an evaluation and a sweep are: frozen data, strict decoding, signatures."""

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
    "DataSpec",
    "EDMSpec",
    "EvaluationSpec",
    "FlowSpec",
    "GuidanceSpec",
    "HeldoutSpec",
    "ModelSpec",
    "ProcessSpec",
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
