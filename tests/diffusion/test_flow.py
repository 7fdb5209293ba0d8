"""Flow matching: straight paths, the velocity as target, t as SiT draws and embeds it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tread_lab.diffusion import Flow, build_process
from tread_lab.specs import (
    FlowSpec,
    RunSpec,
    SamplerSpec,
    UserError,
    decode,
    signature,
)

MODEL = {"depth": 2, "width": 8, "heads": 1}


def test_a_path_runs_straight_from_data_to_noise() -> None:
    x, noise = torch.randn(2, 3, 1, 4, 4)
    flow = Flow(FlowSpec())
    z = flow.noisy(x, noise, torch.tensor([0.0, 0.25, 1.0]))
    torch.testing.assert_close(z[0], x[0])
    torch.testing.assert_close(z[1], 0.75 * x[1] + 0.25 * noise[1])
    torch.testing.assert_close(z[2], noise[2])


def test_the_loss_is_zero_for_the_true_velocity_and_sees_t_unscaled() -> None:
    x, noise = torch.randn(2, 3, 1, 4, 4)
    seen: list[Tensor] = []

    def network(z: Tensor, t: Tensor) -> Tensor:
        seen.append(t)
        return noise - x

    t_B = torch.tensor([0.1, 0.5, 0.9])
    assert Flow(FlowSpec()).loss_terms(network, x, noise, t_B).loss().abs().max() == 0
    torch.testing.assert_close(seen[0], t_B)
    off = Flow(FlowSpec()).loss_terms(lambda z, t: noise - x + 2, x, noise, t_B).loss()
    torch.testing.assert_close(off, torch.full((3,), 4.0))


def test_a_direction_adds_one_minus_the_cosine_over_channels() -> None:
    torch.manual_seed(0)
    x, noise, v = torch.randn(3, 2, 3, 4, 4)
    t_B = torch.tensor([0.2, 0.7])
    found = Flow(FlowSpec(direction=2.0)).loss_terms(lambda z, t: v, x, noise, t_B).loss()
    for b in range(2):
        u = noise[b] - x[b]
        cosines = [
            float(v[b, :, i, j] @ u[:, i, j] / v[b, :, i, j].norm() / u[:, i, j].norm())
            for i in range(4)
            for j in range(4)
        ]
        expected = float((v[b] - u).square().mean()) + 2 * (1 - sum(cosines) / 16)
        assert float(found[b]) == pytest.approx(expected, rel=1e-5)


def test_a_flow_without_direction_keeps_its_signature_and_one_with_it_does_not() -> None:
    assert signature(FlowSpec()) == signature({"kind": "flow", "time": "logit_normal"})
    assert signature(FlowSpec(direction=1.0)) != signature(FlowSpec())
    with pytest.raises(UserError, match="direction: must not be negative"):
        FlowSpec(direction=-1.0)


def test_a_process_without_code_is_refused() -> None:
    spec = FlowSpec()
    object.__setattr__(spec, "kind", "flows")
    with pytest.raises(UserError, match="process: unknown 'flows', did you mean 'flow'"):
        build_process(spec)


def test_one_euler_step_along_the_true_velocity_reaches_the_data() -> None:
    x, noise = torch.randn(2, 3, 1, 4, 4).double()
    flow = Flow(FlowSpec())
    start, end = flow.grid(SamplerSpec(steps=1))
    z = noise + (end - start) * flow.velocity(noise - x, noise, start)
    torch.testing.assert_close(z, x)


def test_the_grid_falls_in_even_steps_in_float64() -> None:
    process = build_process(FlowSpec())
    levels = process.grid(SamplerSpec(steps=3))
    assert levels.dtype == torch.float64 and levels.tolist() == pytest.approx([1, 2 / 3, 1 / 3, 0])
    last = process.grid(SamplerSpec(solver="sde", steps=3))
    assert last.dtype == torch.float64 and last.tolist() == pytest.approx([1, 0.52, 0.04, 0])


def test_quantiles_of_t() -> None:
    u = torch.tensor([0.1, 0.5, 0.9])
    torch.testing.assert_close(Flow(FlowSpec(time="uniform")).level(u), u)
    # sigmoid(N(0, 1)) at its 10%, 50% and 90% quantile: sigmoid(-+1.28155)
    t = Flow(FlowSpec()).level(u)
    torch.testing.assert_close(t, torch.tensor([0.21729, 0.5, 0.78271]), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"kind": "flwo"}, "process: unknown kind 'flwo', did you mean 'flow'?"),
        ({"kind": "flow", "p_mean": 0.0}, "process: unknown key 'p_mean'"),
        ({"kind": "flow", "time": "cosine"}, "process.time: 'cosine' is not one of"),
    ],
)
def test_a_wrong_process_is_one_clear_line(tree: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=r"^[^\n]*$") as error:
        decode(RunSpec, {"model": MODEL, "process": tree})
    assert said in str(error.value)


@pytest.mark.parametrize(("then", "deviation"), [(0.3, 0.8**0.5), (0.0, 0.0)])
def test_a_random_step_of_a_flow_has_a_deviation_but_onto_the_data(
    then: float, deviation: float
) -> None:
    """From t = 0.8: the mean is z - dt (v + z + (1 - t) v), the variance 2 t dt."""
    z, v = torch.tensor([1.0, -2.0]).double(), torch.tensor([0.5, 3.0]).double()
    now, end = torch.tensor([0.8, then]).double()
    mean, found = Flow(FlowSpec()).reverse(v, z, now, end)
    torch.testing.assert_close(mean, z - (0.8 - then) * (v + z + 0.2 * v))
    assert float(found) == pytest.approx(deviation)
