"""What MBPO and MOPO imagine, remember and make of it."""

from dataclasses import replace

import pytest
import torch

from curioplan.config import ModelConfig
from curioplan.errors import ConfigError
from curioplan.models import GaussianEnsemble
from curioplan.values.mbpo import MBPO, MBPOConfig, RolloutMemory, Rollouts
from curioplan.values.mopo import MOPO, MOPOConfig
from tabular import Chain

CHAIN = Chain()
SMALL = {"units": 16, "rollouts": 40, "rollout_every": 10, "buffer_size": 400}


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def learner(kind=MBPO, seeds=(0,), model=None, **settings):
    config = kind.Config(**SMALL | settings)
    return kind(CHAIN.problem, config, list(seeds), model or CHAIN.model())


def noisy_model():
    """A model that has learned nothing, of data in which one dimension never varies, with two elites."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(300, CHAIN.states, generator=generator) * torch.linspace(0.1, 2, CHAIN.states)
    states[:, 3] = 0.5
    actions = 2 * torch.rand(300, 1, generator=generator) - 1
    model = GaussianEnsemble(CHAIN.states, 1, ModelConfig(members=4, elites=2, layers=1, units=16))
    model.add(states, actions, torch.arange(299))
    model.elites = [1, 3]
    return model


def test_rollouts_follow_the_model_from_the_last_real_states_towards_their_goals():
    imagining = learner(rollout_noise=0.0)
    first, second = (CHAIN.batch(32, generators(k)) for k in range(2))
    imagining._keep(first)
    imagining._keep(second)
    rollouts = imagining.imagine()
    states, goals = (torch.cat(parts, 1)[:, -40:] for parts in zip(*imagining.recent, strict=True))
    assert torch.equal(states, torch.cat([first.observations, second.observations], 1)[:, -40:])
    assert torch.equal(rollouts.states[:, :, 0], states)
    for t in range(5):
        at = rollouts.states[:, :, t]
        action = rollouts.actions[:, :, t]
        torch.testing.assert_close(action[0], imagining.act(at[0], goals[0])[0])
        to = CHAIN.moved(at.argmax(-1), torch.where(action[..., 0] > 1e-3, 1, -1))
        sure = (action[..., 0] > 1e-3) | (action[..., 0] < 0)
        assert (rollouts.states[:, :, t + 1].argmax(-1) == to)[sure].all()
    assert rollouts.uncertainty.sub(CHAIN.states**0.5 * torch.tensor(-5.0).exp()).abs().max() < 1e-6


def test_too_few_real_states_are_used_several_times():
    imagining = learner()
    imagining._keep(CHAIN.batch(16, generators(0)))
    starts = imagining.imagine().states[0, :, 0]
    assert torch.equal(starts[:16], starts[16:32])
    assert torch.equal(starts[:8], starts[32:])


def test_no_more_real_batches_are_kept_than_rollouts_start_from():
    imagining = learner()
    for k in range(9):
        imagining._keep(CHAIN.batch(16, generators(k)))
    assert sum(states.shape[1] for states, _ in imagining.recent) == 48


def test_next_states_are_drawn_from_the_gaussians_of_the_elites():
    model = noisy_model()
    imagining = learner(model=model)
    state, action = CHAIN.problem.states.mean, torch.tensor([0.3])
    many = (1, 40_000, -1)
    drawn, _ = imagining.step(state.expand(*many), action.expand(*many))
    mean, variance = model.predict(state[None], action[None])
    mean, variance = mean[model.elites, 0], variance[model.elites, 0]
    low, high = -0.5, 1.5  # one-hot states, widened by half of their range
    noise = torch.randn(40_000, *mean.shape, generator=torch.Generator().manual_seed(1))
    expected = (mean + noise * variance.sqrt()).clamp(low, high).flatten(0, 1)  # as many of each elite
    torch.testing.assert_close(drawn[0].mean(0), expected.mean(0), atol=0.02, rtol=0)
    torch.testing.assert_close(drawn[0].std(0), expected.std(0), atol=0.02, rtol=0)
    assert drawn.min() >= low
    assert drawn.max() <= high


def test_uncertainty_is_the_norm_of_the_largest_deviation_in_units_of_the_changes():
    model = noisy_model()
    states, actions = torch.rand(2, 7, CHAIN.states), torch.rand(2, 7, 1)
    _, found = learner(seeds=(0, 1), model=model).step(states, actions)
    inputs = model.inputs.normalise(torch.cat([states, actions], -1)).flatten(0, 1)
    raw = model.network.infer(inputs)[..., CHAIN.states :]
    deviation = (model._low + model._high * raw.sigmoid()).sqrt()  # (members, 14, states)
    torch.testing.assert_close(found.flatten(), deviation.amax(0).norm(dim=-1))


def test_imagined_transitions_are_relabelled_with_their_own_future_by_index():
    imagining = learner(p_goal=0.6, p_geometric=0.4, seeds=(0, 1))
    # States that tell learner, rollout and time, so that nothing is mistaken for anything else.
    n, horizon = 30, 5
    states = torch.zeros(2, n, horizon + 1, CHAIN.states)
    states[..., 0] = torch.arange(2)[:, None, None]
    states[..., 1] = torch.arange(n)[:, None]
    states[..., 2] = torch.arange(horizon + 1)
    uncertainty = torch.rand(2, n, horizon)
    imagining.memory.add(Rollouts(states, torch.rand(2, n, horizon, 1), uncertainty))
    real = CHAIN.batch(50, generators(0, 1))
    real.goals[:] = -1 - torch.arange(50)[:, None]
    batch, mean = imagining.sample(20_000, real)
    assert batch.observations.shape == (2, 20_000, CHAIN.states)
    at, to, goal = batch.observations, batch.next_observations, batch.goals
    for k in range(2):
        assert (at[k, :, 0] == k).all()
    assert (to[..., :2] == at[..., :2]).all()
    assert (to[..., 2] == at[..., 2] + 1).all()
    future = goal[..., 0] >= 0
    assert future.float().mean() == pytest.approx(0.6, abs=0.02)
    assert (goal[..., :2] == at[..., :2])[future].all()
    ahead = goal[..., 2] - at[..., 2]
    assert torch.equal(batch.steps, torch.where(future, ahead, -1.0))
    assert torch.equal(batch.rewards, (future & (ahead == 1)).float())
    assert torch.equal(batch.terminals, batch.rewards)
    for t in range(horizon):
        found = ahead[future & (at[..., 2] == t)]
        left = horizon - t
        assert found.max() == left
        for tau in range(1, left):
            share = 0.4 * 0.6 ** (tau - 1)
            assert (found == tau).float().mean() == pytest.approx(share, abs=0.03)
    assert len(goal[~future].unique()) == 50
    torch.testing.assert_close(mean, uncertainty.mean((1, 2)), atol=0.02, rtol=0)


def test_memory_keeps_the_newest_rollouts_and_their_order_survives_a_checkpoint():
    def rollouts(first, count):
        number = torch.arange(first, first + count).float().expand(2, -1)
        return Rollouts(
            number[..., None, None].expand(-1, -1, 3, 4),
            number[..., None, None].expand(-1, -1, 2, 1),
            number[..., None].expand(-1, -1, 2),
        )

    memory, copy = RolloutMemory(10), RolloutMemory(10)
    copy.load(memory.state())
    assert copy.filled == 0
    memory.add(rollouts(0, 4))
    assert memory.filled == 4
    assert memory.state()["rings"]["states"].shape == (2, 4, 3, 4)
    memory.add(rollouts(4, 4))
    memory.add(rollouts(8, 4))
    copy.load(memory.state())
    for each in (memory, copy):
        each.add(rollouts(12, 4))
        assert each.filled == 10
        for part in (each.rollouts.states, each.rollouts.actions, each.rollouts.uncertainty):
            found = part.flatten(2)[..., 0]
            assert found.sort(1).values.tolist() == [list(range(6, 16))] * 2


def test_a_batch_holds_the_real_transitions_asked_for_and_imagined_ones_else(monkeypatch):
    seen = []
    imagining = learner(real_ratio=0.25)
    targets = MBPO.targets
    monkeypatch.setattr(MBPO, "targets", lambda self, batch: (seen.append(batch), targets(self, batch))[1])
    real = CHAIN.batch(64, generators(0))
    imagining.update(real)
    normalised = CHAIN.problem.normalise(real)
    assert seen[0].observations.shape == normalised.observations.shape
    assert torch.equal(seen[0].next_observations[:, :16], normalised.next_observations[:, :16])
    assert torch.equal(seen[0].goals[:, :16], normalised.goals[:, :16])
    assert not torch.equal(seen[0].next_observations[:, 16:], normalised.next_observations[:, 16:])


def test_rollouts_are_imagined_as_often_as_asked_for():
    imagining = learner()
    for k in range(25):
        imagining.update(CHAIN.batch(16, generators(k)))
    assert imagining.memory.added == 3 * 40


def test_penalised_targets_stay_in_the_unit_interval():
    wary = learner(MOPO, penalty=50.0)
    for k in range(3):
        wary.update(CHAIN.batch(64, generators(k)))
    batch, uncertainty = wary.sample(500, CHAIN.batch(64, generators(9)))
    torch.testing.assert_close(batch.rewards, batch.terminals - 50 * uncertainty.item(), atol=1e-4, rtol=0)
    assert batch.rewards.min() < 0
    targets = wary.targets(CHAIN.problem.normalise(batch))
    assert ((targets >= 0) & (targets <= 1)).all()


def test_a_task_whose_goals_are_not_in_the_state_is_refused():
    problem = replace(CHAIN.problem, goal_indices=None)
    with pytest.raises(ConfigError, match="goal"):
        MBPO(problem, MBPOConfig(**SMALL), [0], CHAIN.model())


def test_a_model_of_something_else_is_refused():
    with pytest.raises(ConfigError, match="widths"):
        learner(model=Chain(states=4).model())


@pytest.mark.parametrize(
    "settings",
    [
        {"rollouts": 0},
        {"rollout_every": 0},
        {"rollout_horizon": 0},
        {"rollout_noise": -0.1},
        {"real_ratio": 1.0},
        {"buffer_size": 100, "rollouts": 50},
        {"penalty": -1.0},
    ],
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ConfigError):
        MOPOConfig(**settings)
