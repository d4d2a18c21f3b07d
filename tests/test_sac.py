"""The stochastic actor of SAC and its temperature."""

import pytest
import torch
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from curioplan.errors import ConfigError
from curioplan.values.sac import SAC, SACConfig
from tabular import Chain

CHAIN = Chain()


def learner(seeds=(0,), **settings):
    return SAC(CHAIN.problem, SACConfig(units=16, **settings), list(seeds))


def test_actions_are_squashed_gaussians_with_their_density():
    sac = learner()
    outputs = torch.randn(1, 500, 2, generator=torch.Generator().manual_seed(0))
    actions, log_density = sac.sample(outputs)
    assert (actions.abs() <= 1).all()
    mean, spread = outputs.double().chunk(2, -1)
    gaussian = Normal(mean, (-5 + 7 * spread.sigmoid()).exp())
    reference = TransformedDistribution(gaussian, TanhTransform())
    moderate = actions.abs()[..., 0] < 0.999  # where the inverse of tanh is precise
    expected = reference.log_prob(actions.double()).sum(-1)
    torch.testing.assert_close(log_density[moderate], expected[moderate].float(), rtol=1e-3, atol=1e-3)


def test_densities_stay_finite_however_far_the_mean():
    outputs = torch.tensor([[[80.0, 0.0], [-80.0, 0.0]]], requires_grad=True)
    _, log_density = learner().sample(outputs)
    log_density.sum().backward()
    assert torch.isfinite(log_density).all()
    assert torch.isfinite(outputs.grad).all()


def test_the_temperature_steers_the_entropy_of_every_learner_to_its_target():
    sac = learner(
        seeds=(0, 1),
        temperature_learning_rate=0.03,
        actor_learning_rate=3e-3,
        critic_learning_rate=3e-3,
        target_entropy=-0.5,
        temperature=0.1,
    )
    generators = [torch.Generator().manual_seed(seed) for seed in (5, 6)]
    last = [sac.update(CHAIN.batch(128, generators))["entropy"] for _ in range(700)][-100:]
    assert (torch.stack(last).mean(0) + 0.5).abs().max() < 0.15


def test_a_hotter_actor_keeps_more_to_chance():
    entropy = {}
    for temperature in (1e-3, 1.0):
        sac = learner(temperature=temperature, temperature_learning_rate=0.0, actor_learning_rate=3e-3)
        generator = torch.Generator().manual_seed(5)
        for _ in range(300):
            entropy[temperature] = sac.update(CHAIN.batch(64, [generator]))["entropy"].item()
        assert sac.log_temperature.exp().item() == pytest.approx(temperature)
    assert entropy[1.0] > 0.6  # uniform actions have log 2 = 0.69
    assert entropy[1e-3] < entropy[1.0] - 0.1


def test_targets_bear_no_entropy_bonus_and_stay_in_the_unit_interval():
    sac = learner(temperature=100.0)
    batch = CHAIN.problem.normalise(CHAIN.batch(200, [torch.Generator().manual_seed(0)]))
    targets = sac.targets(batch)
    assert ((targets >= 0) & (targets <= 1)).all()


@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {"temperature_learning_rate": -1.0}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        SACConfig(**settings)
