import math

import pytest
import torch

from curioplan.config import ModelConfig
from curioplan.errors import CurioplanError
from curioplan.models import GaussianEnsemble
from curioplan.planning import Foresight, ModelRollout, Objective, Rollout

GAMMA = 0.9


def a_round_trip(points=8, episodes=12, length=25):
    """Episodes that walk a ring, from another point each time, and a model that disagrees about it.

    Returns the ensemble, states, actions, rows of transitions, last rows of their episodes, and states and
    actions of all points.
    """
    angle = torch.arange(points) * 2 * torch.pi / points
    ring, steps = torch.stack([angle.cos(), angle.sin()], -1), torch.stack([angle.sin(), angle.cos()], -1)
    model = GaussianEnsemble(2, 2, ModelConfig(members=3, elites=3, layers=2, units=16), 0)
    at = torch.cat([torch.arange(length + 1) + first for first in range(episodes)]) % points
    last = torch.arange(1, episodes + 1).repeat_interleave(length) * (length + 1) - 1
    rows = torch.arange(length * episodes) + torch.arange(episodes).repeat_interleave(length)
    model.add(ring[at], steps[at], rows)
    for weight in model.network.weights:
        weight.data *= 3
    return model, ring[at], steps[at], rows, last, ring, steps


def train(foresight, observations, actions, rows, last, updates, seed=0):
    source = torch.Generator().manual_seed(seed)
    for _ in range(updates):
        drawn = torch.randint(len(rows), (32,), generator=source)
        foresight.update(observations, actions, rows[drawn], last[drawn])


def test_values_are_the_discounted_disagreement_to_come_though_episodes_end():
    model, observations, actions, rows, last, ring, steps = a_round_trip()
    foresight = Foresight(model, GAMMA, units=32, learning_rate=3e-3)
    train(foresight, observations, actions, rows, last, 2000)
    rewards = model.disagreement(ring, steps)
    assert rewards.max() > 3 * rewards.min()
    onward = torch.eye(len(ring)).roll(1, 1)
    expected = torch.linalg.solve(torch.eye(len(ring)) - GAMMA * onward, rewards)
    torch.testing.assert_close(foresight.value(ring), expected, rtol=0.05, atol=0.0)
    assert foresight.reward == pytest.approx(float(rewards.mean()), rel=0.05)


def test_what_the_model_has_learned_since_draws_no_more():
    model, observations, actions, rows, last, ring, _ = a_round_trip()
    foresight = Foresight(model, GAMMA, units=32, learning_rate=3e-3)
    train(foresight, observations, actions, rows, last, 1000)
    before = foresight.value(ring).mean()
    for weight, bias in zip(model.network.weights, model.network.biases, strict=True):
        weight.data[:], bias.data[:] = weight.data[:1].clone(), bias.data[:1].clone()
    train(foresight, observations, actions, rows, last, 1000)
    assert foresight.value(ring).abs().max() < 0.01 * before


def test_a_plan_is_worth_its_own_disagreement_and_what_lies_beyond():
    model, observations, actions, rows, last, ring, _ = a_round_trip()
    foresight = Foresight(model, GAMMA, units=32)
    assert isinstance(foresight, Objective)
    dynamics = ModelRollout(model, "ts1", particles=3)
    plans = torch.rand(2, 4, 5, 2)
    generators = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
    rollout = dynamics.rollout(ring[:2], plans, generators, disagreement=True)
    own = rollout.disagreement.sum(-1)
    assert torch.equal(foresight(rollout, plans, torch.arange(2)), own), "nothing is known of beyond yet"
    train(foresight, observations, actions, rows, last, 20)
    beyond = foresight.value(rollout.states[..., -1, :].flatten(0, -2)).view(2, 4, 3).mean(-1)
    assert beyond.std() > 0
    torch.testing.assert_close(foresight(rollout, plans, torch.arange(2)), own + beyond)


def test_of_two_ways_that_look_alike_a_plan_takes_the_one_with_more_behind_it():
    model, observations, actions, rows, last, ring, _ = a_round_trip()
    foresight = Foresight(model, GAMMA, units=32, learning_rate=3e-3)
    train(foresight, observations, actions, rows, last, 1000)
    values = foresight.value(ring)
    states = ring[None, :, None, None].expand(1, -1, 1, 2, -1)
    rollout = Rollout(states, torch.ones(1, len(ring), 1), torch.zeros(1, len(ring)))
    worth = foresight(rollout, torch.zeros(1, len(ring), 1, 2), torch.tensor([0]))
    assert worth.argmax() == values.argmax()


def test_it_continues_bit_exactly_from_its_state():
    model, *data, ring, _ = a_round_trip()
    one, other = Foresight(model, GAMMA), Foresight(model, GAMMA, seed=7)
    train(one, *data, 5)
    other.load(one.state())
    for foresight in (one, other):
        train(foresight, *data, 5, seed=1)
    assert one.reward == other.reward
    assert torch.equal(one.value(ring), other.value(ring))


def test_states_that_are_not_finite_are_refused_and_weights_kept():
    model, observations, actions, rows, last, *_ = a_round_trip()
    foresight = Foresight(model, GAMMA)
    train(foresight, observations, actions, rows, last, 3)
    kept = [parameter.clone() for parameter in foresight.network.parameters()]
    with pytest.raises(CurioplanError, match="finite"):
        foresight.update(torch.full_like(observations, math.nan), actions, rows[:4], last[:4])
    assert all(map(torch.equal, kept, foresight.network.parameters()))
