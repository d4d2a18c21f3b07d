"""What every learner promises, whatever its losses."""

import pytest
import torch

from curioplan.config import ModelConfig
from curioplan.errors import ConfigError, CurioplanError
from curioplan.models import GaussianEnsemble
from curioplan.storage import load_tree, save_tree
from curioplan.values.registry import learner_class
from tabular import Chain

LEARNERS = ["td3", "td3 of data", "ddpg", "sac", "crr", "mbpo", "mopo", "iql", "lapo", "wgcsl"]
SETTINGS = {
    "td3 of data": {"values": "data"},
    "mbpo": {"rollouts": 50, "rollout_every": 7, "buffer_size": 600, "real_ratio": 0.25},
    "mopo": {"rollouts": 50, "rollout_every": 7, "buffer_size": 600},
}
"""What the learners need beyond a small network, for all they do to happen within 20 updates; and what
makes another of one."""

CHAIN = Chain()


def kind_of(algo):
    return learner_class(algo.split()[0])


def model():
    """A dynamics model with the statistics of the chain; what it has learned does not matter here."""
    generator = torch.Generator().manual_seed(0)
    states = torch.eye(CHAIN.states)[torch.randint(CHAIN.states, (200,), generator=generator)]
    actions = 2 * torch.rand(200, 1, generator=generator) - 1
    config = ModelConfig(members=3, elites=2, layers=1, units=16)
    ensemble = GaussianEnsemble(CHAIN.states, 1, config)
    ensemble.add(states, actions, torch.arange(199))
    return ensemble


def make(algo, seeds=(0,)):
    kind = kind_of(algo)
    shape = {"units": 32, "actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3}
    config = kind.Config(**shape | SETTINGS.get(algo, {}))
    return kind(CHAIN.problem, config, seeds, model() if kind.needs_model else None)


def batches(count, seeds=(0,), first=0):
    """The batches from the first on; those of a seed do not depend on the other seeds."""
    for k in range(first, first + count):
        batch = CHAIN.batch(64, [torch.Generator().manual_seed(1000 * seed + k) for seed in seeds])
        batch.steps = torch.where(batch.rewards > 0, 1.0, -1.0)  # only the next state is known to be ahead
        yield batch


def train(learner, count, first=0):
    return [learner.update(batch) for batch in batches(count, learner.seeds, first)]


def weights(learner):
    return [p.detach().clone() for network in learner.networks.values() for p in network.parameters()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("algo", LEARNERS)
def test_the_same_seed_gives_the_same_bits_and_another_does_not(algo):
    first, second, other = make(algo), make(algo), make(algo, [1])
    for learner in (first, second):
        train(learner, 20)
    for batch in batches(20):
        other.update(batch)
    assert same(weights(first), weights(second))
    assert not same(weights(first), weights(other))


@pytest.mark.parametrize("algo", LEARNERS)
def test_training_goes_on_from_a_checkpoint_as_if_nothing_had_happened(algo, tmp_path):
    kept, resumed = make(algo, [3, 4]), make(algo, [3, 4])
    train(kept, 15)
    save_tree(tmp_path / "state.safetensors", kept.state())
    expected = train(kept, 15, first=15)
    resumed.load(load_tree(tmp_path / "state.safetensors"))
    assert resumed.updates == 15
    found = train(resumed, 15, first=15)
    assert same(weights(resumed), weights(kept))
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        assert same(mine.values(), theirs.values())


@pytest.mark.parametrize("algo", LEARNERS)
def test_a_checkpoint_is_not_changed_by_further_training(algo):
    learner = make(algo)
    train(learner, 8)
    state = learner.state()
    other = make(algo)
    train(learner, 8, first=8)
    other.load(state)
    train(other, 8, first=8)
    assert same(weights(learner), weights(other))


@pytest.mark.parametrize("algo", LEARNERS)
def test_learners_trained_together_are_those_trained_alone(algo):
    seeds = [5, 6, 7]
    together = make(algo, seeds)
    told = train(together, 20)
    pairs = CHAIN.pairs()
    for k, seed in enumerate(seeds):
        alone = make(algo, [seed])
        told_alone = train(alone, 20)
        torch.testing.assert_close(together.value(*pairs)[k], alone.value(*pairs)[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(together.act(*pairs)[k], alone.act(*pairs)[0], rtol=1e-4, atol=1e-5)
        for mine, theirs in zip(told, told_alone, strict=True):
            for name in mine.keys() | theirs.keys():
                torch.testing.assert_close(mine[name][k], theirs[name][0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("algo", LEARNERS)
def test_an_exported_learner_has_the_values_and_actions_of_the_original(algo):
    seeds, pairs = [8, 9], CHAIN.pairs()
    learner = make(algo, seeds)
    train(learner, 10)
    for k, seed in enumerate(seeds):
        exported = learner.export(k)
        assert exported["seed"] == seed
        single = kind_of(algo)(CHAIN.problem, learner.config, [seed], for_training=False)
        single.adopt(exported)
        torch.testing.assert_close(single.value(*pairs)[0], learner.value(*pairs)[k])
        torch.testing.assert_close(single.act(*pairs)[0], learner.act(*pairs)[k])


@pytest.mark.parametrize("algo", LEARNERS)
def test_values_lie_in_the_unit_interval_distances_agree_and_actions_are_bounded(algo):
    learner, pairs = make(algo, [0, 1]), CHAIN.pairs()
    train(learner, 10)
    values, actions = learner.value(*pairs), learner.act(*pairs)
    assert values.shape == (2, CHAIN.states**2)
    assert actions.shape == (2, CHAIN.states**2, 1)
    assert ((values >= 0) & (values <= 1)).all()
    assert (actions.abs() <= 1).all()
    torch.testing.assert_close(CHAIN.gamma ** learner.distance(*pairs), values)


@pytest.mark.parametrize("algo", LEARNERS)
def test_what_an_update_tells_is_one_finite_number_per_learner(algo):
    learner = make(algo, [0, 1, 2])
    for info in train(learner, 4):
        assert info
        for name, numbers in info.items():
            assert numbers.shape == (3,), name
            assert torch.isfinite(numbers).all(), name
            assert not numbers.requires_grad, name


@pytest.mark.parametrize("algo", LEARNERS)
def test_a_batch_is_left_as_it_is(algo):
    learner = make(algo)
    batch = next(batches(1))
    parts = [part for part in vars(batch).values() if part is not None]
    before = [part.clone() for part in parts]
    learner.update(batch)
    assert same(parts, before)


@pytest.mark.parametrize("algo", LEARNERS)
def test_a_batch_that_is_not_finite_stops_training_before_it_does_harm(algo):
    learner = make(algo, [0, 1])
    train(learner, 3)
    batch = next(batches(1, learner.seeds))
    batch.rewards[1] = torch.nan
    batch.observations[1] = torch.nan
    batch.goals[1] = torch.nan
    before = weights(learner)
    with pytest.raises(CurioplanError, match="not finite"):
        learner.update(batch)
    assert same(weights(learner), before)


@pytest.mark.parametrize("algo", LEARNERS)
def test_a_checkpoint_of_another_shape_is_refused(algo):
    state = make(algo).state()
    with pytest.raises((ConfigError, ValueError)):
        make(algo, [0, 1]).load(state)


@pytest.mark.parametrize("algo", [algo for algo in LEARNERS if kind_of(algo).needs_model])
def test_a_learner_that_imagines_needs_a_model(algo):
    kind = kind_of(algo)
    with pytest.raises(ConfigError, match="model"):
        kind(CHAIN.problem, kind.Config(units=8), [0])
