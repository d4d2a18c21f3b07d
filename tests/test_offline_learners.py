"""CRR, IQL, LAPO and WGCSL find the best of what their data contain."""

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence

from curioplan.data import Relabelling, TrajectoryStore, sample_batch
from curioplan.data.relabel import Batch, stack_batches
from curioplan.errors import ConfigError, CurioplanError
from curioplan.values.crr import CRR, CRRConfig, log_likelihood
from curioplan.values.iql import IQL, IQLConfig
from curioplan.values.lapo import LAPO, LAPOConfig, kl_from_prior
from curioplan.values.losses import expectile_weights
from curioplan.values.wgcsl import WGCSL, WGCSLConfig
from tabular import Chain

FAST = {"units": 64, "actor_learning_rate": 3e-3, "critic_learning_rate": 3e-3, "polyak": 0.95}
SHARE = 0.3
"""Of the data's actions that are good, where they are mixed."""


class SignedChain(Chain):
    """The chain with data of full thrust to either side, so that a network can represent Q exactly."""

    def batch(self, *args, **kwargs):
        batch = super().batch(*args, **kwargs)
        batch.actions = torch.where(batch.actions > 0, 1.0, -1.0)
        return batch


def train(learner, updates, batch):
    """Updates on the batches that `batch` makes from a generator per learner, with a falling step size."""
    generators = [torch.Generator().manual_seed(100 + seed) for seed in learner.seeds]
    for k in range(updates):
        learner.scale_rates(min(1, 2 * (1 - k / updates)))
        learner.update(batch(generators))
    return learner


def train_on_mixed(learner, chain, updates):
    return train(learner, updates, lambda generators: chain.batch(256, generators, "mixed", SHARE))


def learned_values(learner, chain):
    return learner.value(*chain.pairs()).unflatten(1, (chain.states, chain.states))


def towards(learner, chain):
    """How far the actions go in the optimal direction, of all pairs that have one (learners, pairs)."""
    directions = chain.directions()
    actions = learner.act(*chain.pairs())[..., 0].unflatten(1, directions.shape)
    return (actions * directions)[:, directions != 0]


def expectile(values, probabilities, tau):
    """The m with E[|τ − 1(x < m)| (x − m)] = 0, over the first dimension."""
    found = (probabilities * values).sum(0)
    for _ in range(200):
        weights = probabilities * torch.where(values > found, tau, 1 - tau)
        found = (weights * values).sum(0) / weights.sum(0)
    return found


def iql_fixed_point(chain, tau, *, fooled=False):
    """What V converges to on mixed data; `fooled` picks among outcomes of actions instead of actions."""
    best, at = chain.directions(), torch.arange(chain.states)
    to = torch.stack([chain.moved(at, -1), chain.moved(at, 1)])
    chosen = torch.stack([torch.where(best == sign, SHARE, 1 - SHARE) for sign in (-1, 1)]).double()
    chosen[:, best == 0] = 0.5
    reached, values = torch.eye(chain.states).double(), torch.zeros(chain.states, chain.states).double()
    for _ in range(300):
        outcome = reached + chain.gamma * (1 - reached) * values
        moved, stayed = outcome[to], outcome.expand(2, -1, -1)
        if fooled:
            outcomes = torch.cat([moved, stayed]), torch.cat([chosen * (1 - chain.slip), chosen * chain.slip])
        else:
            outcomes = (1 - chain.slip) * moved + chain.slip * stayed, chosen
        values = expectile(*outcomes, tau)
    return values.float()


# On the chain


def test_iql_values_are_discounted_distances():
    chain = SignedChain()
    learner = IQL(chain.problem, IQLConfig(expectile=0.99, critic_loss="cross-entropy", **FAST), [0])
    train_on_mixed(learner, chain, 800)
    values, at = learned_values(learner, chain)[0], torch.arange(chain.states)
    apart = (at[:, None] - at).abs()
    assert (values - chain.gamma ** (apart - 1.0))[apart > 0].abs().max() < 0.02
    assert (values - iql_fixed_point(chain, 0.99)).abs().max() < 0.01
    assert towards(learner, chain).min() > 0


def test_iql_values_are_not_those_of_lucky_outcomes():
    chain = SignedChain(slip=0.3)
    right, fooled = iql_fixed_point(chain, 0.99), iql_fixed_point(chain, 0.99, fooled=True)
    assert (right - chain.values()).abs().max() < 0.015
    assert (fooled - chain.values()).max() > 0.1
    learner = IQL(chain.problem, IQLConfig(expectile=0.99, critic_loss="cross-entropy", **FAST), [0])
    train_on_mixed(learner, chain, 800)
    values = learned_values(learner, chain)[0]
    assert (values - right).abs().max() < 0.025
    assert (values - fooled).abs().max() > 0.08
    assert towards(learner, chain).min() > 0


def test_a_lower_expectile_settles_for_less():
    chain = SignedChain()
    learner = IQL(chain.problem, IQLConfig(expectile=0.8, critic_loss="cross-entropy", **FAST), [0])
    train_on_mixed(learner, chain, 800)
    expected = iql_fixed_point(chain, 0.8)
    assert (chain.values() - expected).max() > 0.2
    assert (learned_values(learner, chain)[0] - expected).abs().max() < 0.025


@pytest.mark.parametrize(
    ("kind", "settings", "updates"), [(CRR, {"beta": 0.02}, 600), (LAPO, {}, 500)], ids=["crr", "lapo"]
)
def test_the_rare_good_actions_are_found(kind, settings, updates):
    chain = Chain()
    learner = kind(chain.problem, kind.Config(**FAST | settings), [0, 1])
    train_on_mixed(learner, chain, updates)
    assert towards(learner, chain).min() > 0
    assert (learned_values(learner, chain) - chain.values()).abs().max() < 0.06


def test_crr_at_its_default_temperature_is_close_to_cloning():
    """Weights between exp(−ΔQ) and exp(ΔQ) cannot make up for bad actions being twice as frequent."""
    chain = Chain()
    learner = CRR(chain.problem, CRRConfig(**FAST), [0])
    train_on_mixed(learner, chain, 300)
    assert towards(learner, chain).max() < 0


def walks(chain, episodes=200, length=30, right=0.7):
    """Trajectories of a walker that prefers one side."""
    rng = np.random.default_rng(0)
    store = TrajectoryStore(chain.states, chain.states, 1)
    for _ in range(episodes):
        signs = np.where(rng.random(length) < right, 1, -1)
        states = [rng.integers(chain.states)]
        for sign in signs:
            states.append(np.clip(states[-1] + sign, 0, chain.states - 1))
        seen = np.eye(chain.states)[states]
        store.add_episode(seen, (signs * rng.random(length))[:, None], seen)
    return store


def test_wgcsl_finds_the_way_where_imitation_drifts_with_the_data():
    chain = Chain()
    store, config = walks(chain), WGCSLConfig(percentile_step=0.2, **FAST)

    def batch(generators):
        relabelled = stack_batches([sample_batch(store, 256, Relabelling(), each) for each in generators])
        # Goals are rewarded by their rows, but the states of a chain recur.
        reached = (relabelled.next_observations == relabelled.goals).all(-1).float()
        relabelled.rewards, relabelled.terminals = reached, reached.clone()
        return relabelled

    learner = train(WGCSL(chain.problem, config, [0, 1]), 800, batch)
    assert towards(learner, chain).min() > 0
    assert (learned_values(learner, chain) - chain.values()).abs().max() < 0.06

    imitator = WGCSL(chain.problem, config, [0, 1])
    imitator.weights = lambda advantages, steps: (steps > 0).float()
    train(imitator, 600, batch)
    assert towards(imitator, chain).amin(1).max() < 0


# On numbers made by hand

NUMBERS = Chain(states=2, gamma=0.9)


def by_hand(kind, **settings):
    """A learner whose networks all give 0, except critics, whose log-odds are the action (and one more)."""
    learner = kind(NUMBERS.problem, kind.Config(layers=1, units=4, **settings), [0])
    for name, network in learner.networks.items():
        for parameter in network.parameters():
            parameter.data.zero_()
        if name.startswith("critic"):
            network.weights[0].data[:, NUMBERS.states, 0] = 1  # relu(a + 1) …
            network.biases[0].data[:, 0, 0] = 1
            network.weights[1].data[:, 0, 0] = 1
            network.biases[1].data[:, 0, 0] = torch.arange(network.members) - 1.0  # … − 1, and the twin's + 0
    return learner


def transitions(actions, rewards=None, steps=None):
    """One learner's transitions with these actions."""
    count = len(actions)
    rewards = torch.zeros(count) if rewards is None else torch.tensor(rewards)
    states = torch.zeros(1, count, NUMBERS.states)
    return Batch(
        observations=states,
        actions=torch.tensor(actions)[None, :, None],
        next_observations=states,
        goals=states,
        rewards=rewards[None],
        terminals=rewards[None],
        goal_rows=torch.zeros(1, count, dtype=torch.int64),
        steps=None if steps is None else torch.tensor(steps)[None],
    )


def odds(*logits):
    return torch.tensor(logits).sigmoid()


def test_expectile_loss_punishes_values_that_are_too_low():
    learner, batch = by_hand(IQL, expectile=0.9), transitions([0.0, 0.0])
    losses, _ = learner.value_loss(batch, torch.tensor([[0.7, 0.3]]))  # V = 0.5
    assert losses.tolist() == pytest.approx([(0.9 * 0.2**2 + 0.1 * 0.2**2) / 2])
    assert expectile_weights(torch.tensor([0.2, -0.2]), 0.9).tolist() == pytest.approx([0.9, 0.1])


def test_expectile_loss_has_no_gradient_at_the_expectile():
    """V = 0.5 is the expectile 0.8 of 0.55 and 0.3: 0.8 · 0.05 = 0.2 · 0.2; either loss agrees."""
    for kind in ("squared", "cross-entropy"):
        learner, batch = by_hand(IQL, expectile=0.8, critic_loss=kind), transitions([0.0, 0.0])
        learner.value_loss(batch, torch.tensor([[0.55, 0.3]]))[0].sum().backward()
        assert learner.networks["value"].biases[1].grad.abs().item() < 1e-7


def test_iql_looks_one_step_ahead_unless_the_goal_is_reached():
    targets = by_hand(IQL).targets(transitions([0.0, 0.0], rewards=[0.0, 1.0]))
    assert targets[0].tolist() == pytest.approx([0.9 * 0.5, 1.0])


def test_iql_actor_weights_count_advantages_in_steps_and_are_capped():
    weights = by_hand(IQL, temperature=2.0).actor_weights(torch.tensor([-0.1, 0.0, 0.1, 0.9]))
    assert weights.tolist() == pytest.approx([np.exp(-2), 1, np.exp(2), 100])


def test_iql_actor_loss_is_a_weighted_squared_error():
    learner, batch = by_hand(IQL, temperature=1.0), transitions([1.0, -0.5])
    losses, _ = learner.actor_loss(batch, torch.tensor([[0.6, 0.4]]))  # V = 0.5, π = 0
    assert losses.tolist() == pytest.approx([(np.exp(1) * 1 + np.exp(-1) * 0.25) / 2])


def test_crr_weights_are_exponential_and_capped():
    weights = by_hand(CRR, beta=0.1).weights(torch.tensor([-0.1, 0.0, 0.1, 1.0]))
    assert weights.tolist() == pytest.approx([np.exp(-1), 1, np.exp(1), 20])


def test_crr_advantages_are_over_the_mean_of_samples_by_the_lower_critic():
    learner, batch = by_hand(CRR), transitions([0.5, -1.0])
    drawn = iter([0.0, 1.0, -1.0, 0.5])
    learner.sample = lambda mean, log_std: torch.full_like(mean, next(drawn))
    advantages = learner.advantages(batch, torch.zeros(1, 2, 1), torch.zeros(1, 2, 1))
    expected = odds(0.5, -1.0) - odds(0.0, 1.0, -1.0, 0.5).mean()
    torch.testing.assert_close(advantages[0], expected)


def test_crr_samples_are_those_of_its_actor_within_bounds():
    learner = by_hand(CRR)
    mean, log_std = torch.full((1, 20_000, 1), 0.1), torch.full((1, 20_000, 1), -2.0)
    drawn = learner.sample(mean, log_std)
    assert drawn.mean().item() == pytest.approx(0.1, abs=5 * np.exp(-2) / np.sqrt(20_000))
    assert drawn.std().item() == pytest.approx(np.exp(-2), rel=0.03)
    assert learner.sample(mean, log_std + 3).abs().max() == 1


def test_log_likelihood_is_that_of_a_normal_and_finite_at_the_bounds():
    actions, mean = torch.tensor([[-1.0, 1.0], [0.3, -0.2]]), torch.tensor([[-1.0, -1.0], [0.5, 0.5]])
    log_std = torch.tensor([[-3.0, -3.0], [0.0, -1.0]])
    expected = Normal(mean, log_std.exp()).log_prob(actions).sum(-1)
    torch.testing.assert_close(log_likelihood(actions, mean, log_std), expected)


def test_crr_actor_loss_and_its_gradients_are_finite_at_the_bounds():
    learner = CRR(NUMBERS.problem, CRRConfig(units=8), [0])
    learner.networks["actor"].biases[-1].data[:] = torch.tensor([50.0, -50.0])  # mean 1, smallest deviation
    losses, _ = learner.actor_loss(transitions([1.0, -1.0]))
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert all(torch.isfinite(p.grad).all() for p in learner.networks["actor"].parameters())


def test_lapo_weighs_actions_by_whether_they_beat_its_own():
    learner, batch = by_hand(LAPO), transitions([0.5, -0.5])  # the policy's action is 0
    advantages = learner.advantages(batch)
    torch.testing.assert_close(advantages[0], odds(0.5, -0.5) - 0.5)
    assert learner.weights(advantages)[0].tolist() == pytest.approx([0.9, 0.1])


def test_lapo_autoencoder_loss_is_weighted_error_and_divergence():
    learner, batch = by_hand(LAPO, kl_weight=0.3), transitions([0.5, -1.0])
    bias = learner.networks["encoder"].biases[1].data
    bias[:, 0] = torch.tensor([1.0, -2.0, 0.0, -1.0])  # means and log-variances of two latents
    losses, info = learner.autoencoder_loss(batch, torch.tensor([[0.9, 0.1]]))
    kl = 0.5 * (1 + 1 - 1 - 0) + 0.5 * (4 + np.exp(-1) - 1 + 1)
    assert info["kl"].tolist() == pytest.approx([kl])
    expected = (0.9 * (0.25 + 0.3 * kl) + 0.1 * (1 + 0.3 * kl)) / 2
    assert losses.tolist() == pytest.approx([expected])


def test_divergence_from_the_prior_is_that_of_normals():
    mean, log_variance = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    prior = Normal(torch.zeros(3), torch.ones(3))
    expected = kl_divergence(Normal(mean, (0.5 * log_variance).exp()), prior).sum(-1)
    torch.testing.assert_close(kl_from_prior(mean, log_variance), expected)


def test_lapo_actor_loss_moves_neither_decoder_nor_critics():
    learner = LAPO(NUMBERS.problem, LAPOConfig(units=8), [0])
    learner.actor_loss(transitions([0.5, -0.5]))[0].sum().backward()
    moved = {
        name
        for name, network in learner.networks.items()
        if any(p.grad is not None for p in network.parameters())
    }
    assert moved == {"actor"}


def test_lapo_latents_stay_within_their_bound():
    learner = by_hand(LAPO, max_latent=2.0)
    learner.networks["actor"].biases[1].data.fill_(100.0)
    decoder = learner.networks["decoder"]
    decoder.weights[0].data[:, 2 * NUMBERS.states, 0] = 0.25  # of the first latent
    decoder.weights[1].data[:, 0, 0] = 1
    states = torch.zeros(1, 1, NUMBERS.states)
    assert learner.policy(states, states).item() == pytest.approx(np.tanh(0.25 * 2))


def test_wgcsl_weights_are_of_three_parts_and_none_for_random_goals():
    learner = by_hand(WGCSL)
    learner.threshold = torch.tensor([0.05])
    advantages, steps = torch.tensor([[0.1, 0.0, 0.9, 0.1]]), torch.tensor([[1.0, 3.0, 2.0, -1.0]])
    expected = [0.9 * np.exp(1), 0.9**3 * 0.05, 0.9**2 * 10, 0]
    assert learner.weights(advantages, steps)[0].tolist() == pytest.approx(expected)


def test_wgcsl_advantages_are_one_step_ahead():
    learner = by_hand(WGCSL)  # its one critic's log-odds at the policy's action 0 are −1 + 1 = 0
    advantages = learner.advantages(transitions([0.3, 0.3], rewards=[0.0, 1.0]))
    assert advantages[0].tolist() == pytest.approx([0.9 * 0.5 - 0.5, 1 - 0.5])


def test_wgcsl_threshold_is_a_rising_percentile_of_imitated_advantages_for_each_learner():
    learner = WGCSL(NUMBERS.problem, WGCSLConfig(units=8, percentile_step=10.0), [0, 1])
    advantages = torch.stack([torch.linspace(0, 1, 11), torch.linspace(0, -2, 11)])
    imitated = torch.ones(2, 11, dtype=torch.bool)
    learner.updates = 5
    learner.threshold = torch.tensor([3.0, 3.0])
    learner.move_threshold(advantages, imitated)  # the sixth batch, at its median
    torch.testing.assert_close(learner.threshold, torch.tensor([3.0 - 2.5 / 6, 3.0 - 4.0 / 6]))
    learner.updates, learner.threshold = 10_000, torch.tensor([0.5, 0.5])
    imitated[0, :6] = False
    imitated[1] = False
    learner.move_threshold(advantages, imitated)  # at 80 %, of 0.6 … 1 and of none
    torch.testing.assert_close(learner.threshold, torch.tensor([0.99 * 0.5 + 0.01 * 0.92, 0.5]))


def test_wgcsl_imitates_nothing_for_random_goals_but_learns_their_values():
    learner = WGCSL(NUMBERS.problem, WGCSLConfig(units=8), [0])
    before = {
        name: [p.detach().clone() for p in learner.networks[name].parameters()]
        for name in ("actor", "critic")
    }
    learner.update(transitions([0.5, -0.5], steps=[-1.0, -1.0]))
    same = {
        name: all(
            torch.equal(a, b) for a, b in zip(before[name], learner.networks[name].parameters(), strict=True)
        )
        for name in before
    }
    assert same == {"actor": True, "critic": False}


def test_wgcsl_says_what_is_missing_where_steps_are_unknown():
    learner = WGCSL(NUMBERS.problem, WGCSLConfig(units=8), [0])
    with pytest.raises(CurioplanError, match="steps ahead"):
        learner.update(transitions([0.5]))


def test_relabelled_goals_tell_how_many_steps_ahead_they_lie():
    store, row = TrajectoryStore(1, 1, 1), 0
    for length in (1, 4, 9):
        states = np.arange(row, row + length + 1, dtype=np.float32)[:, None]
        store.add_episode(states, np.zeros((length, 1)), states)
        row += length + 1
    batch = sample_batch(store, 5000, Relabelling(0.5, 0.2), torch.Generator().manual_seed(0))
    rows = batch.observations[:, 0].long()
    later = (store.episode_of[rows] == store.episode_of[batch.goal_rows]) & (batch.goal_rows > rows)
    assert torch.equal(batch.steps, torch.where(later, batch.goal_rows - rows, -1).float())
    assert torch.equal(batch.steps == 1, batch.rewards == 1)
    assert 0.1 < (batch.steps == -1).float().mean() < 0.5


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        (CRRConfig, {"beta": 0.0}),
        (CRRConfig, {"action_samples": 0}),
        (IQLConfig, {"expectile": 1.0}),
        (IQLConfig, {"temperature": -1.0}),
        (LAPOConfig, {"positive_weight": 1.0}),
        (LAPOConfig, {"max_latent": 0.0}),
        (WGCSLConfig, {"max_percentile": 101.0}),
        (WGCSLConfig, {"p_goal": 0.0}),
    ],
)
def test_impossible_settings_are_refused(config, wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        config(**wrong)
