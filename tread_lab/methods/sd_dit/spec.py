"""SD-DiT in a run's spec: the loss `discrimination`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tread_lab.config.decode import Count, Positive, Share
from tread_lab.config.errors import UserError
from tread_lab.config.recipe import Loss
from tread_lab.config.run import RunSpec


@dataclass(frozen=True, kw_only=True)
class DiscriminationLoss(Loss):
    """SD-DiT (Zhu et al. 2024): L_G + weight * L_D, the plain loss and self-distillation.

    A teacher, the moving average of the encoder and of its head, sees all tokens of the sample with
    the same noise at a level near zero. L_D is the cross-entropy between its distribution over
    prototypes and the student's, a mean over the tokens that the student's encoder sees; centring
    and sharpening are DINO's (Caron et al. 2021, eq. 1 and 4).

    Defaults not from the paper: head, temperatures and momenta are those of DINO and iBOT, whose
    loss it uses; the weight is 1.

    Attributes:
        weight: weight of L_D.
        level: noise level of the teacher's samples; 0.002 is EDM's sigma_min.
        prototypes: K, outputs of the head.
        hidden, bottleneck: widths of the head's MLP and of the vectors compared with prototypes.
        momentum: momentum of the teacher, per step.
        center_momentum: momentum of the centre of the teacher's outputs, per step.
        student_temperature, teacher_temperature: temperatures of the two distributions.
    """

    system: ClassVar[str] = "sd_dit"

    kind: Literal["discrimination"] = "discrimination"
    weight: Positive = 1.0
    level: Positive = 0.002
    prototypes: Count = 8192
    hidden: Count = 2048
    bottleneck: Count = 256
    momentum: Share = 0.996
    center_momentum: Share = 0.9
    student_temperature: Positive = 0.1
    teacher_temperature: Positive = 0.04

    def __str__(self) -> str:
        return "discrimination" if self.weight == 1 else f"discrimination {self.weight:g}"

    def resolved(self, run: RunSpec) -> DiscriminationLoss:
        if not run.bypass.encodes:
            raise UserError("loss: discrimination requires `bypass: mask` and routes: [0->B-1]")
        return self
