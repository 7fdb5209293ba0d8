"""SD-DiT as it joins a run: what it adds, costs and reads."""

# N tokens of an image, n that the encoder sees, d width, h hidden, b bottleneck, K prototypes

from __future__ import annotations

from tread_lab.config.run import RunSpec
from tread_lab.cost.blocks import Added, Beside
from tread_lab.methods.sd_dit.spec import DiscriminationLoss
from tread_lab.train.joining import Joining, Part, System


class SDDiT(System):
    """The loss `discrimination`."""

    def part(self, run: Joining) -> Part:
        from tread_lab.methods.sd_dit.discrimination import Discrimination

        return Discrimination(run)

    def beside(self, spec: RunSpec) -> Beside:
        """The head, d h + h h + h b + b K per token of the encoder; averages of encoder and head,
        and K values of the centre."""
        loss = DiscriminationLoss.of(spec)
        d, h, b, K = spec.model.width, loss.hidden, loss.bottleneck, loss.prototypes
        products = d * h + h * h + h * b + b * K
        kept = (spec.tokens * (2 * K + 2 * b), spec.tokens * (d + 4 * h + b))
        parameters = products + h + h + b
        head = Added(parameters, macs=lambda tokens: min(tokens) * products, activations=kept)
        return Beside(head, averages_network=True, averaged=head, buffers=K)


SYSTEM = SDDiT()
