"""SD-DiT while training: a teacher's view of the tokens that the student's encoder sees."""

# B batch, N tokens, n tokens that the student sees, D width, E bottleneck, K prototypes

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tread_lab.backbones.dit import DiT
from tread_lab.methods.sd_dit.spec import DiscriminationLoss
from tread_lab.routing.rejoin import IDENTITY, gather_tokens
from tread_lab.train.assemble import initialised
from tread_lab.train.batches import Batch
from tread_lab.train.joining import ForwardPass, Joining, Part
from tread_lab.train.optimizer import update_averages


class Head(nn.Module):
    """An MLP of three layers, then cosines with K prototypes (the head of DINO and iBOT)."""

    def __init__(self, width: int, spec: DiscriminationLoss) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(width, spec.hidden),
            nn.GELU(),
            nn.Linear(spec.hidden, spec.hidden),
            nn.GELU(),
            nn.Linear(spec.hidden, spec.bottleneck),
        )
        self.prototypes_KE = nn.Parameter(torch.randn(spec.prototypes, spec.bottleneck))
        for linear in (m for m in self.mlp if isinstance(m, nn.Linear)):
            nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    def forward(self, x_BnD: Tensor) -> Tensor:
        e_BnE = F.normalize(self.mlp(x_BnD), dim=2)
        return F.linear(e_BnE, F.normalize(self.prototypes_KE, dim=1))


class Teacher(nn.Module):
    """Average of the student's encoder and head, and the centre of its outputs.

    The encoder is the student's network without its bypass and without its last layer.
    """

    center_K: Tensor

    def __init__(self, student: nn.Module, head: Head) -> None:
        super().__init__()
        assert isinstance(student, DiT)
        self.encoder, self.head = copy.deepcopy((student, head))
        del self.encoder.re_enter
        self.encoder.re_enter, self.encoder.final_layer = IDENTITY, nn.Identity()
        self.register_buffer("center_K", torch.zeros(len(head.prototypes_KE)))
        self.requires_grad_(False)


class Discrimination(Part):
    """L_D of a batch, and the teacher that follows the student after every step."""

    observes = True

    def __init__(self, run: Joining) -> None:
        loss = DiscriminationLoss.of(run.spec)
        self.spec, self.process, self.network, self.sum = loss, run.process, run.network, run.sum
        self.last_block = run.spec.model.depth - 1
        with initialised(run.spec.seed, "head"):
            self.head = Head(run.spec.model.width, loss).to(run.device)
        self.teacher = Teacher(run.network, self.head).to(run.device)
        super().__init__({"head": self.head}, {"teacher": self.teacher})
        self.start()

    def start(self) -> None:
        """Make the teacher equal to the student."""
        torch._foreach_copy_(*self._pairs())
        self.teacher.center_K.zero_()
        self._sum_K = torch.zeros_like(self.teacher.center_K)
        self._tokens = torch.zeros((), device=self._sum_K.device)

    def loss(self, loss_B: Tensor, done: ForwardPass) -> Tensor:
        """loss_B + weight * mean over seen tokens of - sum_k p_teacher log p_student."""
        return loss_B + self.discrimination(done.streams[self.last_block], done.batch)

    def discrimination(self, stream_BnD: Tensor, batch: Batch) -> Tensor:
        """Return weight * L_D of every sample.

        Args:
            stream_BnD: the student's tokens after the encoder.
        """
        spec, (route,) = self.spec, batch.routing or (None,)
        with torch.no_grad():
            f_BnD = self._tokens_of(batch)
            if route is not None:
                f_BnD = gather_tokens(f_BnD, route.keep_BK)
            real_Bn = torch.ones_like(f_BnD[:, :, 0], dtype=torch.float32)
            if route is not None and route.real_BK is not None:
                real_Bn = route.real_BK.float()
            taught_BnK = self.teacher.head(f_BnD).float()
            self._sum_K += torch.einsum("bnk,bn->k", taught_BnK, real_Bn)
            self._tokens += real_Bn.sum()
            sharp_BnK = (taught_BnK - self.teacher.center_K) / spec.teacher_temperature
            p_BnK = sharp_BnK.softmax(dim=2)
        said_BnK = self.head(stream_BnD).float() / spec.student_temperature
        entropy_Bn = -(p_BnK * said_BnK.log_softmax(dim=2)).sum(dim=2)
        return spec.weight * (real_Bn * entropy_Bn).sum(dim=1) / real_Bn.sum(dim=1)

    def after_step(self, skipped: Tensor | None = None) -> None:
        """Update teacher and centre after an optimizer step, unless it was `skipped`."""
        averages, values = self._pairs()
        update_averages(averages, values, self.spec.momentum, skipped)
        sums = self.sum(torch.cat([self._sum_K, self._tokens[None]]))  # of all its processes
        mean_K = sums[:-1] / sums[-1].clamp(min=1)
        update_averages([self.teacher.center_K], [mean_K], self.spec.center_momentum, skipped)
        self._sum_K.zero_()
        self._tokens.zero_()

    def _tokens_of(self, batch: Batch) -> Tensor:
        """The teacher's tokens of all places, at x0 + level * the student's own noise."""
        tokens: list[Tensor] = []

        def network(z_BCHW: Tensor, t_B: Tensor) -> Tensor:
            tokens.append(self.teacher.encoder.encode(z_BCHW, t_B, batch.y_B)[0])
            channels = self.teacher.encoder.out_channels
            return z_BCHW.new_zeros(len(z_BCHW), channels, *z_BCHW.shape[2:])

        level_B = torch.full_like(batch.u_B, self.spec.level)
        z_BCHW = self.process.noisy(batch.x_BCHW, batch.noise_BCHW, level_B)
        self.process.predict(network, z_BCHW, level_B)
        return tokens[0]

    def _pairs(self) -> tuple[list[Tensor], list[Tensor]]:
        """What the teacher has, and the same of the student."""
        encoder, head = dict(self.network.named_parameters()), dict(self.head.named_parameters())
        named = {f"encoder.{n}": p for n, p in encoder.items()}
        named |= {f"head.{n}": p for n, p in head.items()}
        own = dict(self.teacher.named_parameters())
        return list(own.values()), [named[name].detach() for name in own]
