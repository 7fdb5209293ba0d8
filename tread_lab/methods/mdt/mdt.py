"""MDT as it joins a run: what it adds, costs and reads."""

# N tokens of an image, n kept tokens, d width

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tread_lab.config.run import RunSpec
from tread_lab.cost.blocks import FP32, NOTHING, Added, Tokens, block_cost
from tread_lab.methods.mdt.spec import BothLoss, MdtBypass
from tread_lab.train.joining import ForwardPass, Joining, Part, System

if TYPE_CHECKING:
    from torch import Tensor


class MDT(System):
    """The bypass `mdt`, and the loss `both` under any bypass."""

    def network(self, spec: RunSpec) -> Mapping[str, Any]:
        if not isinstance(spec.bypass, MdtBypass):
            return {}
        from tread_lab.methods.mdt.side_interpolater import SideInterpolater

        side = spec.data.size // spec.model.patch
        return {"re_enter": SideInterpolater(spec.model, side=side, spans=spec.spans)}

    def part(self, run: Joining) -> Part | None:
        loss = run.spec.loss
        return BothPasses(loss.weight, run.spec.tokens) if isinstance(loss, BothLoss) else None

    def passes_again(self, spec: RunSpec) -> bool:
        return isinstance(spec.loss, BothLoss)

    def added(self, spec: RunSpec, c_out: int) -> Added:
        """A block on all places where tokens are masked, a mask token, N d trained positions."""
        if not isinstance(spec.bypass, MdtBypass):
            return NOTHING
        model, N, block = spec.model, spec.tokens, block_cost(spec.model)
        positions, token = N * model.width, model.width
        side = spec.data.size // model.patch
        unsampled = block.parameters(model) + block.place_parameters(model, side) + token
        in_block = block.kept(model, N, FP32) // FP32

        def macs(tokens: Tokens) -> int:
            return block.macs(model, N) if min(tokens) < N else 0

        return Added(unsampled + positions, 0, macs, (in_block, 0), unsampled)


class BothPasses(Part):
    """L_full + weight * L_masked; without routed tokens only the full pass."""

    def __init__(self, weight: float, N: int) -> None:
        super().__init__()
        self.weight, self.N = weight, N

    def loss(self, loss_B: Tensor, done: ForwardPass) -> Tensor:
        if all(route.whole(self.N) for route in done.batch.routing or ()):
            return loss_B
        return done.again(None).loss() + self.weight * loss_B


SYSTEM = MDT()
