import math
from dataclasses import replace

import pytest
import torch

from curioplan.config import ModelConfig
from curioplan.errors import ConfigError, CurioplanError
from curioplan.models import GaussianEnsemble
from curioplan.planning import Disagreement, Distance, Dynamics, ModelRollout, Novelty, Objective, Rollout

CONFIG = ModelConfig(members=4, elites=3, layers=2, units=16)


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def ensemble(identical=False, variance=None, seed=0):
    """A model of made-up data, with weights large enough that states move; identical members on demand."""
    source = torch.Generator().manual_seed(seed)
    states = torch.randn(200, 3, generator=source) * torch.tensor([1.0, 5.0, 0.1]) + 2
    actions = torch.rand(200, 2, generator=source)
    bounds = {"log_variance_min": -200, "log_variance_max": -190} if variance == 0 else {}
    model = GaussianEnsemble(3, 2, replace(CONFIG, **bounds), seed)
    model.add(states, actions, torch.arange(199))
    model.elites = [0, 1, 3]
    for weight in model.network.weights:
        weight.data *= 2
        if identical:
            weight.data[:] = weight.data[:1].clone()
    return model, states


def iterate(model, state, actions, member):
    """States (H + 1, obs) under the mean of one member, within the range of the data widened by half."""
    low, high = model.inputs.low[:3], model.inputs.high[:3]
    margin = (high - low) / 2
    states = [state]
    for action in actions:
        following = model.predict(states[-1][None], action[None])[0][member, 0]
        states.append(following.clamp(low - margin, high + margin))
    return torch.stack(states)


def test_imagined_states_stay_near_the_data_however_wild_the_networks():
    model, states = ensemble()
    model.network.biases[-1].data += 1e3
    for propagation in ("ts1", "mean", "shared"):
        actions = torch.rand(1, 5, 30, 2)
        dynamics = ModelRollout(model, propagation, particles=4)
        imagined = dynamics.rollout(states[:1], actions, generators(0), disagreement=True).states
        seen = states[:199]
        span = seen.amax(0) - seen.amin(0)
        assert (imagined >= seen.amin(0) - 0.5001 * span).all()
        assert (imagined <= seen.amax(0) + 0.5001 * span).all()
        torch.testing.assert_close(imagined[0, 0, 0, -1], seen.amax(0) + 0.5 * span)


@pytest.mark.parametrize("propagation", ["ts1", "mean", "shared"])
@pytest.mark.parametrize("disagreement", [True, False])
@pytest.mark.parametrize("sequences", [6, 7])
def test_identical_members_without_variance_iterate_the_deterministic_map(
    propagation, disagreement, sequences
):
    model, states = ensemble(identical=True, variance=0)
    dynamics = ModelRollout(model, propagation, particles=4)
    actions = torch.rand(2, sequences, 5, 2)
    rollout = dynamics.rollout(states[:2], actions, generators(0, 1), disagreement=disagreement)
    assert isinstance(dynamics, Dynamics)
    assert rollout.states.shape == (2, sequences, dynamics.particles, 6, 3)
    for b in range(2):
        for p in range(sequences):
            expected = iterate(model, states[b], actions[b, p], 0)
            torch.testing.assert_close(rollout.states[b, p, 0], expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(rollout.spread, torch.zeros(2, sequences), atol=1e-6, rtol=0)
    if disagreement:
        torch.testing.assert_close(rollout.disagreement, torch.zeros(2, sequences, 5), atol=1e-6, rtol=0)
    else:
        assert rollout.disagreement is None


def test_mean_propagation_carries_every_elite_along_its_own_mean():
    model, states = ensemble()
    actions = torch.rand(1, 3, 4, 2)
    rollout = ModelRollout(model, "mean").rollout(states[:1], actions, generators(0), disagreement=False)
    for p in range(3):
        for k, member in enumerate(model.elites):
            expected = iterate(model, states[0], actions[0, p], member)
            torch.testing.assert_close(rollout.states[0, p, k], expected, rtol=1e-3, atol=1e-3)


def test_spread_is_the_particle_variance_of_normalised_states_summed_over_the_horizon():
    model, states = ensemble()
    rollout = ModelRollout(model, "ts1", 5).rollout(
        states[:2], torch.rand(2, 4, 6, 2), generators(0, 1), disagreement=False
    )
    normalised = rollout.states / model.inputs.std[:3]
    expected = normalised.var(2, correction=0).mean(-1).sum(-1)
    torch.testing.assert_close(rollout.spread, expected, rtol=1e-3, atol=1e-5)
    assert (rollout.spread > 0).all()


@pytest.mark.parametrize("propagation", ["ts1", "mean", "shared"])
def test_disagreement_of_a_rollout_is_that_of_its_states_averaged_over_particles(propagation):
    model, states = ensemble()
    actions = torch.rand(2, 4, 3, 2)
    rollout = ModelRollout(model, propagation, 5).rollout(
        states[:2], actions, generators(0, 1), disagreement=True
    )
    for t in range(3):
        at = rollout.states[:, :, :, t]
        repeated = actions[:, :, None, t].expand(-1, -1, at.shape[2], -1)
        expected = model.disagreement(at.flatten(0, 2), repeated.flatten(0, 2)).view(at.shape[:3]).mean(2)
        torch.testing.assert_close(rollout.disagreement[:, :, t], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("propagation", ["ts1", "shared"])
def test_states_are_the_same_with_and_without_disagreement(propagation):
    model, states = ensemble()
    dynamics, actions = ModelRollout(model, propagation, 3), torch.rand(2, 5, 4, 2)
    first = dynamics.rollout(states[:2], actions, generators(0, 1), disagreement=True).states.clone()
    second = dynamics.rollout(states[:2], actions, generators(0, 1), disagreement=False).states
    torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("propagation", ["ts1", "mean", "shared"])
@pytest.mark.parametrize("disagreement", [True, False])
def test_an_episode_does_not_depend_on_those_it_shares_a_batch_with(propagation, disagreement):
    model, states = ensemble()
    dynamics, actions = ModelRollout(model, propagation, 3), torch.rand(3, 7, 4, 2)
    together = dynamics.rollout(states[:3], actions, generators(0, 1, 2), disagreement=disagreement)
    together_states, together_spread = together.states[1].clone(), together.spread[1].clone()
    alone = dynamics.rollout(states[1:2], actions[1:2], generators(1), disagreement=disagreement)
    torch.testing.assert_close(alone.states[0], together_states, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(alone.spread[0], together_spread, rtol=1e-3, atol=1e-5)
    if disagreement:
        torch.testing.assert_close(alone.disagreement[0], together.disagreement[1], rtol=1e-3, atol=1e-5)


def test_ts1_samples_from_the_mixture_of_the_elites_gaussians():
    model, states = ensemble()
    action = torch.rand(2)
    rollout = ModelRollout(model, "ts1", 9000).rollout(
        states[:1], action.view(1, 1, 1, 2), generators(0), disagreement=False
    )
    sampled = rollout.states[0, 0, :, 1]
    mean, variance = (x[model.elites, 0] for x in model.predict(states[:1], action[None]))
    mixture_variance = variance.mean(0) + mean.var(0, correction=0)
    error = mixture_variance.sqrt() / 9000**0.5
    assert ((sampled.mean(0) - mean.mean(0)).abs() < 5 * error).all()
    torch.testing.assert_close(sampled.var(0), mixture_variance, rtol=0.1, atol=0)


def test_elites_take_equal_shares_of_the_particles():
    model, states = ensemble(variance=0)
    rollout = ModelRollout(model, "ts1", 10).rollout(
        states[:1], torch.rand(1, 1, 1, 2).expand(1, 3, 1, 2), generators(0), disagreement=True
    )
    _, counts = rollout.states[0, :, :, 1].flatten(0, 1).round(decimals=3).unique(dim=0, return_counts=True)
    assert counts.tolist() == [10, 10, 10]


def test_an_unknown_propagation_is_refused():
    with pytest.raises(ConfigError, match="propagation"):
        ModelRollout(ensemble()[0], "ts2")


def imagined(states):
    return Rollout(states, torch.ones(*states.shape[:2], states.shape[3] - 1), torch.zeros(states.shape[:2]))


def test_disagreement_objective_sums_over_the_horizon():
    rollout = Rollout(torch.zeros(1, 2, 1, 4, 1), torch.arange(6.0).view(1, 2, 3), torch.zeros(1, 2))
    values = Disagreement()(rollout, torch.zeros(1, 2, 3, 1), torch.tensor([0]))
    assert values.tolist() == [[3.0, 12.0]]
    assert isinstance(Disagreement(), Objective)


def test_distance_is_measured_to_the_goal_of_each_slot():
    states = torch.zeros(2, 1, 2, 3, 4)
    states[0, 0, :, 1:, 2] = torch.tensor([[3.0, 1.0], [5.0, 1.0]])
    goals = torch.tensor([[9.0, 9.0], [1.0, 0.0], [0.0, 0.0]])
    slots, actions = torch.tensor([2, 1]), torch.zeros(2, 1, 2, 1)
    assert Distance(goals, [2, 3])(imagined(states), actions, slots).tolist() == [[-5.0], [-2.0]]
    assert Distance(goals, [2, 3], final=True)(imagined(states), actions, slots).tolist() == [[-1.0], [-1.0]]


def test_novelty_falls_where_states_were_visited():
    novelty, source = Novelty(2), torch.Generator().manual_seed(0)
    visited = torch.randn(500, 2, generator=source)
    novelty.add(visited)
    before = novelty.error(visited).mean()
    for _ in range(200):
        novelty.update(visited[torch.randint(500, (128,), generator=source)])
    assert novelty.error(visited).mean() < 0.2 * before
    far = visited + 6
    assert novelty.error(far).mean() > 20 * novelty.error(visited).mean()
    states = torch.stack([visited[:12].view(1, 2, 2, 3, 2), far[:12].view(1, 2, 2, 3, 2)], 1).flatten(1, 2)
    values = novelty(imagined(states), torch.zeros(1, 4, 2, 1), torch.tensor([0]))
    assert values[0, 2:].min() > values[0, :2].max()
    expected = novelty.error(states[0, 3, :, 1:].flatten(0, 1)).view(2, 2).sum(1).mean()
    torch.testing.assert_close(values[0, 3], expected)


def test_novelty_continues_bit_exactly_from_its_state():
    novelty, states = Novelty(2), torch.randn(64, 2)
    novelty.add(states)
    novelty.update(states)
    other = Novelty(2, seed=7)
    other.load(novelty.state())
    for model in (novelty, other):
        model.update(states)
    assert torch.equal(novelty.error(states), other.error(states))


def test_novelty_refuses_states_that_are_not_finite():
    novelty = Novelty(2)
    with pytest.raises(CurioplanError, match="finite"):
        novelty.update(torch.full((4, 2), math.nan))
