"""On problems small enough to solve exactly, the learners find the solution."""

from functools import cache

import numpy as np
import pytest
import torch

from curioplan.data import Relabelling, TrajectoryStore, sample_batch
from curioplan.data.relabel import stack_batches
from curioplan.errors import ConfigError
from curioplan.values.losses import critics_loss
from curioplan.values.registry import learner_class
from tabular import Chain

SETTINGS = {"units": 64, "critic_learning_rate": 4e-3, "actor_learning_rate": 3e-4, "polyak": 0.95}
IMAGINING = SETTINGS | {
    "rollouts": 400,
    "rollout_every": 100,
    "rollout_horizon": 3,
    "rollout_noise": 1.0,
    "buffer_size": 6000,
    "p_geometric": 0.5,
}
SEEDS = [0, 1]


@cache
def trained(algo, slip, updates=1000, **settings):
    """The chain, learners of two seeds trained on it with falling step sizes, and their last batch."""
    chain, kind = Chain(slip=slip), learner_class(algo)
    config = kind.Config(**(IMAGINING if kind.needs_model else SETTINGS) | settings)
    learner = kind(chain.problem, config, SEEDS, chain.model() if kind.needs_model else None)
    generators = [torch.Generator().manual_seed(100 + seed) for seed in SEEDS]
    for k in range(updates):
        learner.scale_rates(min(1, 2 * (1 - k / updates)))
        batch = chain.batch(128, generators)
        learner.update(batch)
    return chain, learner, batch


def values(chain, learner):
    return learner.value(*chain.pairs()).view(-1, chain.states, chain.states)


def imagined_fixed_point(chain, learner, real, number):
    """The values (states, goals) to which imagined transitions lead if solved exactly.

    On a chain, these are not quite those of the chain: a goal is the state reached if it is so by its index,
    while that same state reached by chance, or twice, counts for nothing; and where the world is random,
    futures that came true are all that hindsight sees.
    """
    size, n = 100_000, chain.states
    batch, _ = learner.sample(size, real)
    at, to, goal = (
        part[number].argmax(-1) for part in (batch.observations, batch.next_observations, batch.goals)
    )
    cell = (at * n + goal) * 2 + (batch.actions[number, :, 0] > 0)
    count = torch.bincount(cell, minlength=2 * n * n)
    assert count.min() > 50, "the data cover all that is compared"
    value, going_on = torch.zeros(n, n), chain.gamma * (1 - batch.terminals[number])
    for _ in range(150):  # γ^150 is 1e-7
        target = (batch.rewards[number] + going_on * value[to, goal]).clamp(0, 1)
        value = (torch.bincount(cell, target, 2 * n * n) / count).view(n, n, 2).amax(-1).float()
    return value


@pytest.mark.parametrize("algo", ["td3", "ddpg", "sac"])
def test_values_are_discounted_distances(algo):
    chain, learner, _ = trained(algo, 0.0)
    states = torch.arange(chain.states)
    steps = (states[:, None] - states).abs()
    steps[(steps == 0) & (states > 0) & (states < chain.states - 1)] = 2  # leave and come back
    expected = chain.gamma ** (steps - 1).clamp(min=0)
    torch.testing.assert_close(chain.values(), expected.float())
    assert (values(chain, learner) - expected).abs().max() < 0.03


@pytest.mark.parametrize("algo", ["td3", "ddpg", "sac"])
def test_values_are_those_of_value_iteration_where_moves_fail(algo):
    chain, learner, _ = trained(algo, 0.2)
    assert (values(chain, learner) - chain.values()).abs().max() < 0.05


@pytest.mark.parametrize("algo", ["td3", "ddpg"])
def test_cross_entropy_and_log_odds_have_the_same_fixed_point(algo):
    chain, learner, _ = trained(algo, 0.0, critic_loss="cross-entropy", actor_objective="log-odds")
    assert (values(chain, learner) - chain.values()).abs().max() < 0.03


@pytest.mark.parametrize("algo", ["td3", "ddpg", "sac", "mbpo"])
@pytest.mark.parametrize("slip", [0.0, 0.2])
def test_policies_take_the_shortest_way(algo, slip):
    chain, learner, _ = trained(algo, slip)
    best = chain.directions()
    actions = learner.act(*chain.pairs()).view(-1, chain.states, chain.states)
    assert ((actions.sign() == best) | (best == 0)).all()


@pytest.mark.parametrize("slip", [0.0, 0.2])
def test_values_learned_in_imagination_are_the_fixed_point_of_what_was_imagined(slip):
    chain, learner, batch = trained("mbpo", slip)
    for number, found in enumerate(values(chain, learner)):
        assert (found - imagined_fixed_point(chain, learner, batch, number)).abs().max() < 0.035
        assert (found - chain.values()).abs().max() < 0.05


def test_a_penalty_on_uncertainty_lowers_values_to_its_own_fixed_point():
    chain, plain, _ = trained("mbpo", 0.0)
    _, wary, batch = trained("mopo", 0.0, penalty=3.0)  # times an uncertainty of 0.0165 in every state
    assert (values(chain, wary) < values(chain, plain)).all()
    for number, found in enumerate(values(chain, wary)):
        assert (found - imagined_fixed_point(chain, wary, batch, number)).abs().max() < 0.035
    one_step = torch.eye(chain.states).roll(1, 1)[:-1].nonzero()
    at, goal = one_step.unbind(1)
    assert (values(chain, wary)[:, at, goal] - (values(chain, plain)[:, at, goal] - 0.05)).abs().max() < 0.03


def test_without_a_penalty_mopo_is_mbpo():
    _, plain, _ = trained("mbpo", 0.2, updates=250)
    _, wary, _ = trained("mopo", 0.2, updates=250, penalty=0.0)
    for name, network in plain.networks.items():
        others = wary.networks[name].parameters()
        assert all(torch.equal(p, q) for p, q in zip(network.parameters(), others, strict=True))


def test_targets_are_no_less_than_what_the_data_show():
    chain, kind = Chain(), learner_class("td3")
    generators = [torch.Generator().manual_seed(seed) for seed in SEEDS]
    batch = chain.batch(64, generators)
    batch.steps = torch.randint(-1, 6, batch.rewards.shape, generator=generators[0]).float()
    plain, bounded = (
        kind(chain.problem, kind.Config(units=16, hindsight=hindsight), SEEDS).targets(batch)
        for hindsight in (False, True)
    )
    shown = torch.where(batch.steps > 0, chain.gamma ** (batch.steps - 1), 0.0)
    torch.testing.assert_close(bounded, torch.maximum(plain, shown))
    assert (bounded > plain).any()
    assert torch.equal(bounded[batch.steps <= 0], plain[batch.steps <= 0])


def test_targets_look_ahead_with_the_better_of_policy_and_data():
    chain, kind = Chain(), learner_class("td3")
    generators = [torch.Generator().manual_seed(seed) for seed in SEEDS]
    batch = chain.batch(64, generators)
    plain, better, without = (
        kind(chain.problem, kind.Config(units=16, next_action=which), SEEDS)
        for which in ("policy", "better", "better")
    )
    assert torch.equal(
        without.targets(batch), plain.targets(batch)
    )  # of no trajectory: nothing was done next
    batch.next_actions = torch.rand(batch.actions.shape, generator=generators[0]) * 2 - 1
    taken = better.q_logits(
        batch.next_observations, batch.next_actions, batch.goals, "critic_target"
    ).sigmoid()
    plain = kind(chain.problem, kind.Config(units=16), SEEDS)
    of_data = batch.rewards + chain.gamma * (1 - batch.terminals) * taken
    of_policy, found = plain.targets(batch), better.targets(batch)
    torch.testing.assert_close(found, torch.maximum(of_policy, of_data))
    assert (found > of_policy).any()
    assert (found > of_data + 1e-4).any()


def looking_on(batch, chain, most, generator):
    """A batch that tells where a walk to the right, or none, has come after up to so many steps."""
    on, walks = (
        torch.randint(0, most, batch.rewards.shape, generator=generator),
        torch.rand(batch.rewards.shape),
    )
    later = chain.moved(batch.next_observations.argmax(-1), on * (walks < 0.5))
    batch.next_observations, batch.span = torch.eye(chain.states)[later], 1.0 + on
    batch.next_actions = torch.where(torch.rand(batch.actions.shape, generator=generator) < 0.5, -1.0, 1.0)
    return batch


@pytest.mark.parametrize("which", ["policy", "better", "values"])
def test_targets_look_several_steps_ahead_along_the_data(which):
    chain, kind = Chain(), learner_class("td3")
    generators = [torch.Generator().manual_seed(seed) for seed in SEEDS]
    batch = looking_on(chain.batch(64, generators), chain, 5, generators[0])
    settings = {"values": "data"} if which == "values" else {"next_action": which, "target_noise": 0.0}
    learner = kind(chain.problem, kind.Config(units=16, **settings), SEEDS)
    later, goals = batch.next_observations, batch.goals
    if which == "values":
        worth = [learner.infer("value_target", (later, goals))[..., 0].amin(1)]
    else:
        worth = [learner.q_logits(later, learner.policy(later, goals), goals, "critic_target")]
    if which == "better":
        worth.append(learner.q_logits(later, batch.next_actions, goals, "critic_target"))
    shown = chain.gamma**batch.span * torch.stack(worth).amax(0).sigmoid()
    arrived = chain.gamma ** (batch.span - 1)
    torch.testing.assert_close(learner.targets(batch), torch.where(batch.terminals > 0, arrived, shown))


@pytest.mark.parametrize("expectile", [0.5, 0.9])
def test_values_of_the_data_are_an_expectile_of_where_it_led(expectile):
    """The data go left or right, half of the time each; τ (better) + (1 − τ) (worse) is their expectile."""
    chain, learner, _ = trained("td3", 0.0, updates=1500, values="data", expectile=expectile)
    to = torch.stack([chain.moved(torch.arange(chain.states), sign) for sign in (-1, 1)])
    value = torch.zeros(chain.states, chain.states)
    for _ in range(300):
        outcome = torch.where(torch.eye(chain.states) > 0, 1.0, chain.gamma * value)[to]
        value = expectile * outcome.amax(0) + (1 - expectile) * outcome.amin(0)
    assert (values(chain, learner) - value).abs().max() < 0.05
    best = chain.directions()
    actions = learner.act(*chain.pairs()).view(-1, chain.states, chain.states)
    assert ((actions.sign() == best) | (best == 0)).all(), "the actor climbs critics of these values"


@pytest.mark.parametrize("expectile", [0.2, 0.5, 0.9])
def test_critics_learn_an_expectile_of_their_targets(expectile):
    targets = torch.tensor([[0.1, 0.2, 0.7, 0.9]])
    for kind in ("squared", "cross-entropy"):
        logit = torch.zeros(1, 1, 1, requires_grad=True)
        optimizer = torch.optim.Adam([logit], 0.02)
        for _ in range(600):
            optimizer.zero_grad()
            critics_loss(logit.expand(1, 1, 4), targets, kind, expectile)[0].sum().backward()
            optimizer.step()
        value = logit.sigmoid().item()
        above, below = (targets - value).clamp(min=0).sum(), (value - targets).clamp(min=0).sum()
        assert expectile * above.item() == pytest.approx((1 - expectile) * below.item(), abs=2e-3)


def test_targets_of_terminal_transitions_need_no_future():
    chain, kind = Chain(), learner_class("td3")
    batch = chain.batch(50, [torch.Generator().manual_seed(seed) for seed in SEEDS])
    assert len(set((batch.terminals == 0).sum(1).tolist())) == 2, "learners differ in how many go on"
    learner = kind(chain.problem, kind.Config(units=16, target_noise=0.0), SEEDS)
    following, goals = batch.next_observations, batch.goals
    future = learner.q_logits(following, learner.policy(following, goals), goals, "critic_target").sigmoid()
    expected = torch.where(batch.terminals > 0, 1.0, chain.gamma * future)
    torch.testing.assert_close(learner.targets(batch), expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"lookahead": 0}, "lookahead must be at least 1, not 0"), ({"expectile": 1.0}, "below 1, not 1.0")],
)
def test_impossible_settings_of_targets_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        learner_class("td3").Config(**settings)


@pytest.mark.parametrize("lookahead", [1, 10])
def test_values_count_the_first_time_a_goal_is_reached_however_far_targets_look(lookahead):
    """Data go round and round, so that goals are passed by, and come to again."""
    chain, kind, places = Chain(), learner_class("td3"), torch.arange(61) % 6
    store = TrajectoryStore(chain.states, chain.states, 1)
    around = torch.eye(chain.states)[places].numpy()
    store.add_episode(around, np.zeros((60, 1)), around)
    config = kind.Config(**SETTINGS, values="data", lookahead=lookahead)
    learner, generator = kind(chain.problem, config, [0]), torch.Generator().manual_seed(0)
    anywhere = Relabelling(p_goal=0.0)
    for k in range(1000):
        learner.scale_rates(min(1, 2 * (1 - k / 1000)))
        batch = sample_batch(
            store, 128, anywhere, generator, success=lambda a, b: (a == b).all(-1), lookahead=lookahead
        )
        learner.update(stack_batches([batch]))
    states = torch.arange(chain.states)
    steps = (states - states[:, None] - 1) % chain.states + 1
    assert (values(chain, learner)[0] - chain.gamma ** (steps - 1)).abs().max() < 0.03
