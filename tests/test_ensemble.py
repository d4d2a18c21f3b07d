import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curioplan.config import ModelConfig
from curioplan.errors import ConfigError, CurioplanError
from curioplan.models import GaussianEnsemble
from curioplan.models.bootstrap import Bootstrap
from curioplan.models.ensemble import gaussian_loss

SMALL = ModelConfig(members=4, elites=3, layers=2, units=32, learning_rate=2e-3, batch_size=128)


def trajectory(step, actions, start, noise, seed=0):
    """States (N + 1, obs) and actions (N + 1, act) of one long trajectory."""
    generator = torch.Generator().manual_seed(seed)
    states = [start]
    for action in actions:
        mean = step(states[-1], action)
        states.append(mean + noise * torch.randn(mean.shape, generator=generator))
    return torch.stack(states), torch.cat([actions, actions[-1:]])


def linear_system(n=3000, noise=(0.05, 0.2), seed=0):
    """s' = A s + B a + noise, and rows of all its transitions."""
    a_matrix, b_matrix = torch.tensor([[0.9, 0.2], [0.0, 0.8]]), torch.tensor([[0.0], [1.0]])
    actions = torch.rand(n, 1, generator=torch.Generator().manual_seed(seed + 1)) * 2 - 1
    states, actions = trajectory(
        lambda s, a: a_matrix @ s + b_matrix @ a, actions, torch.zeros(2), torch.tensor(noise), seed
    )
    return states, actions, torch.arange(n), (a_matrix, b_matrix)


def filled(config=SMALL, n=600, seed=0):
    states, actions, rows, _ = linear_system(n)
    ensemble = GaussianEnsemble(2, 1, config, seed)
    ensemble.add(states, actions, rows)
    return ensemble, states, actions


def test_a_noisy_linear_system_is_recovered_with_its_noise():
    states, actions, rows, (a_matrix, b_matrix) = linear_system()
    ensemble = GaussianEnsemble(2, 1, SMALL)
    ensemble.add(states, actions, rows)
    ensemble.update(states, actions, 800)
    test_states, test_actions, _, _ = linear_system(300, seed=9)
    mean, variance = ensemble.predict(test_states, test_actions)
    truth = test_states @ a_matrix.t() + test_actions @ b_matrix.t()
    error = (mean.mean(0) - truth).square().mean(0).sqrt()
    assert (error < torch.tensor([0.015, 0.06])).all()
    expected = torch.tensor([0.05, 0.2]).square()
    assert torch.allclose(variance.mean((0, 1)), expected, rtol=0.25)


def test_a_nonlinear_system_is_predicted_better_than_by_a_constant_or_a_line():
    def step(s, a):
        return torch.stack([s[0] + 0.3 * torch.sin(3 * s[0]) * a[0], 0.7 * s[1] + a[0] ** 2])

    actions = torch.rand(3000, 1, generator=torch.Generator().manual_seed(1)) * 2 - 1
    states, actions = trajectory(step, actions, torch.zeros(2), torch.tensor([0.02, 0.02]))
    train, test = torch.arange(2500), torch.arange(2500, 3000)
    ensemble = GaussianEnsemble(2, 1, SMALL)
    ensemble.add(states, actions, train)
    ensemble.update(states, actions, 800)
    change = states[1:] - states[:-1]
    features = torch.cat([states, actions, torch.ones(len(states), 1)], 1)
    line = features[test] @ torch.linalg.lstsq(features[train], change[train]).solution
    predicted = ensemble.predict(states[test], actions[test])[0].mean(0) - states[test]

    def error(prediction):
        return (prediction - change[test]).square().mean().item()

    assert error(predicted) < 0.2 * min(error(line), error(change[train].mean(0)))


def test_beta_zero_is_the_gaussian_likelihood():
    mean, variance, target = torch.randn(3, 5, 2), torch.rand(3, 5, 2) + 0.1, torch.randn(3, 5, 2)
    expected = -torch.distributions.Normal(mean, variance.sqrt()).log_prob(target).mean((1, 2))
    torch.testing.assert_close(gaussian_loss(mean, variance, target) + math.log(2 * math.pi) / 2, expected)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_gradients_of_the_loss_follow_the_formula(beta):
    mean = torch.randn(1, 6, 2, dtype=torch.float64, requires_grad=True)
    variance = (torch.rand(1, 6, 2, dtype=torch.float64) + 0.1).requires_grad_()
    target = torch.randn(6, 2, dtype=torch.float64)
    gaussian_loss(mean, variance, target, beta).sum().backward()
    error, count = mean.detach() - target, 12
    torch.testing.assert_close(mean.grad, variance.detach() ** (beta - 1) * error / count)
    slope = variance.detach() ** beta * (1 / variance - (error / variance) ** 2).detach() / 2
    torch.testing.assert_close(variance.grad, slope / count)


def test_log_variances_are_the_double_softplus_bound_of_pets():
    ensemble = GaussianEnsemble(3, 1, SMALL)
    raw = torch.linspace(-40, 40, 51, dtype=torch.float64).unsqueeze(1).expand(-1, 3)
    _, variance = ensemble._gaussian(torch.cat([torch.zeros_like(raw), raw], 1))
    low, high = SMALL.log_variance_min, SMALL.log_variance_max
    expected = high - torch.nn.functional.softplus(-raw)  # raw here is shifted by the upper bound
    expected = low + torch.nn.functional.softplus(expected - low)
    torch.testing.assert_close(variance.log(), expected)
    torch.testing.assert_close(ensemble.variance_(raw.sigmoid()), variance)


@settings(max_examples=30, deadline=None)
@given(chunks=st.lists(st.integers(0, 30), min_size=1, max_size=6), share=st.sampled_from([0.0, 0.1, 0.5]))
def test_bootstraps_draw_each_chunk_from_itself_and_never_what_is_held_out(chunks, share):
    generator = torch.Generator().manual_seed(0)
    bootstrap, start, seen = Bootstrap(3, share), 0, 0
    for chunk in chunks:
        rows = torch.arange(start, start + chunk) * 2 + 1
        bootstrap.add(rows, generator)
        fresh = bootstrap.rows[:, seen:]
        assert set(fresh.flatten().tolist()) <= set(rows.tolist())
        start, seen = start + chunk, bootstrap.count
    assert bootstrap.held_out_count == int(share * start)
    assert bootstrap.count + bootstrap.held_out_count == start
    held_out = set(bootstrap.held_out.tolist())
    assert len(held_out) == bootstrap.held_out_count
    assert not held_out & set(bootstrap.rows.flatten().tolist())


def test_members_have_bootstraps_of_their_own_and_batches_come_from_them():
    bootstrap, generator = Bootstrap(4, 0.1), torch.Generator().manual_seed(0)
    bootstrap.add(torch.arange(200), generator)
    for batches in ([bootstrap.sample(64, generator)], bootstrap.epoch(64, generator)):
        for batch in batches:
            for m in range(4):
                assert set(batch[m].tolist()) <= set(bootstrap.rows[m].tolist())
    assert len({tuple(row.tolist()) for row in bootstrap.rows}) == 4
    epoch = torch.cat(list(bootstrap.epoch(64, generator)), 1)
    assert torch.equal(epoch.sort(1).values, bootstrap.rows.long().sort(1).values)


def test_held_out_transitions_have_no_influence_on_training():
    first, states, actions = filled()
    changed = states.clone()
    used = set(first.bootstrap.rows.flatten().tolist())
    used |= {r + 1 for r in used}
    untouched = [r for r in range(len(states)) if r not in used]
    assert untouched
    changed[untouched] += 100.0
    second, _, _ = filled()
    first.update(states, actions, 3)
    second.update(changed, actions, 3)
    for a, b in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    weights = []
    for seed in (0, 0, 1):
        ensemble, states, actions = filled(seed=seed)
        ensemble.update(states, actions, 3)
        weights.append(ensemble.network.weights[1].detach())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("before", [0, 3])
def test_training_continues_bit_exactly_from_its_state(before):
    ensemble, states, actions = filled()
    ensemble.update(states, actions, before)
    ensemble.select_elites(states, actions)
    state = ensemble.state()
    other = GaussianEnsemble(2, 1, SMALL, seed=5)
    other.load(state)
    assert other.elites == ensemble.elites
    extended = torch.cat([states, states[-50:].flip(0)]), torch.cat([actions, actions[-50:]])
    for model in (ensemble, other):
        model.add(*extended, torch.arange(len(states), len(states) + 49))
        model.update(*extended, 4)
        model.fit(*extended, 2)
    first, second = ensemble.state(), other.state()
    assert torch.equal(first["generator"], second["generator"])
    for key in ("parameters", "first_moments", "second_moments"):
        assert all(
            torch.equal(a, b) for a, b in zip(first["network"][key], second["network"][key], strict=True)
        )
    assert torch.equal(first["bootstrap"]["rows"], second["bootstrap"]["rows"])
    assert not torch.equal(state["network"]["parameters"][0], first["network"]["parameters"][0])


def test_a_state_of_another_shape_is_refused():
    ensemble, _, _ = filled()
    with pytest.raises(ConfigError, match="shapes"):
        GaussianEnsemble(3, 1, SMALL).load(ensemble.state())


def test_values_that_are_not_finite_stop_training_with_weights_as_before():
    ensemble, states, actions = filled()
    ensemble.update(states, actions, 2)
    before = ensemble.state()["network"]
    states[:] = math.nan
    with pytest.raises(CurioplanError, match="loss"):
        ensemble.update(states, actions, 1)
    after = ensemble.state()["network"]
    assert all(torch.equal(a, b) for a, b in zip(before["parameters"], after["parameters"], strict=True))
    assert before["step"] == after["step"]


def test_training_without_data_is_refused():
    with pytest.raises(CurioplanError, match="no transitions"):
        GaussianEnsemble(2, 1, SMALL).update(torch.zeros(2, 2), torch.zeros(2, 1), 1)


def test_fit_never_ends_below_the_likelihood_it_started_from_and_stops_early():
    config = ModelConfig(
        members=3, elites=2, layers=1, units=16, learning_rate=0.5, batch_size=64, patience=2
    )
    ensemble, states, actions = filled(config, n=300)
    before = ensemble.held_out_likelihood(states, actions)
    ensemble.fit(states, actions, 50)  # a step size this large ruins every member
    assert (ensemble.held_out_likelihood(states, actions) >= before).all()
    steps = ensemble.state()["network"]["step"]
    assert steps < 50 * math.ceil(270 / 64)


def test_fit_improves_the_likelihood():
    ensemble, states, actions = filled(n=1000)
    before = ensemble.held_out_likelihood(states, actions)
    ensemble.fit(states, actions, 10)
    assert (ensemble.held_out_likelihood(states, actions) > before + 0.1).all()


def test_held_out_likelihood_equals_that_of_a_normal_distribution():
    ensemble, states, actions = filled()
    rows = ensemble.bootstrap.held_out.long()
    mean, variance = ensemble.predict(states[rows], actions[rows])
    density = torch.distributions.Normal(mean, variance.sqrt()).log_prob(states[rows + 1])
    expected = (density + ensemble.changes.std.log()).mean((1, 2))  # densities per normalised unit
    torch.testing.assert_close(ensemble.held_out_likelihood(states, actions), expected, rtol=1e-4, atol=1e-4)


def test_elites_are_the_members_of_highest_held_out_likelihood():
    ensemble, states, actions = filled(replace(SMALL, elites=2))
    ensemble.update(states, actions, 50)
    for parameter in ensemble.network.parameters():
        parameter.data[1] *= 3  # spoil one
    ensemble.network.biases[-1].data[2] = math.nan  # and ruin another
    likelihood = ensemble.select_elites(states, actions)
    assert ensemble.elites == [0, 3]
    assert likelihood.shape == (4,)


def test_disagreement_equals_a_hand_computation():
    ensemble, states, actions = filled()
    mean, variance = ensemble.predict(states, actions)
    scale = ensemble.changes.std
    mean, variance = (mean - states - ensemble.changes.mean) / scale, variance / scale**2
    expected = mean.var(0, correction=0).sum(1) + variance.var(0, correction=0).sum(1)
    torch.testing.assert_close(ensemble.disagreement(states, actions), expected, rtol=1e-3, atol=1e-6)


def test_disagreement_is_high_away_from_the_data():
    ensemble, states, actions = filled()
    ensemble.update(states, actions, 400)
    on_data = ensemble.disagreement(states, actions).mean()
    away = ensemble.disagreement(states + 20 * states.std(0), actions).mean()
    assert away > 20 * on_data


def test_transitions_leading_to_others_end_where_an_episode_begins():
    bootstrap, generator = Bootstrap(2, 0.1), torch.Generator().manual_seed(0)
    bootstrap.add(torch.tensor([0, 1, 2]), generator)
    bootstrap.add(torch.tensor([4, 5, 6, 7]), generator)  # row 3 is a last state
    rows = torch.tensor([[0, 2, 4], [5, 7, 7]])
    assert bootstrap.leading_to(rows, torch.full_like(rows, 2)).tolist() == [[0, 2, 0], [1, 2, 2]]
    assert bootstrap.leading_to(rows, torch.tensor([[4, 1, 4], [0, 4, 3]])).tolist() == [[0, 1, 0], [0, 3, 3]]


def gates(episodes=200, length=20, seed=0):
    """A walk along a line past a gate, at which a number jumps from 0 to 1 for good, seen with noise."""
    generator = torch.Generator().manual_seed(seed)
    actions = 0.03 + 0.05 * torch.rand(episodes, length, 1, generator=generator)
    starts = torch.rand(episodes, 1, 1, generator=generator) * 0.5
    places = torch.cat([starts, starts + actions.cumsum(1)], 1)
    passed = (places > 0.7) + 0.02 * torch.randn(places.shape, generator=generator)
    last = torch.zeros(episodes, 1, 1)
    rows = torch.arange(episodes * (length + 1)).view(episodes, -1)[:, :-1].flatten()
    return torch.cat([places, passed], -1).flatten(0, 1), torch.cat([actions, last], 1).flatten(0, 1), rows


def test_a_model_trained_on_what_it_imagines_comes_out_of_a_jump_as_it_should():
    observations, actions, rows = gates()

    def error(imagined):
        model = GaussianEnsemble(2, 1, replace(SMALL, imagined=imagined), seed=0)
        model.add(observations, actions, rows)
        model.update(observations, actions, 1500)
        states = torch.stack([torch.linspace(0.3, 0.6, 50), torch.zeros(50)], 1).expand(SMALL.members, -1, -1)
        for _ in range(12):  # every member on its own, to well behind the gate
            steps = [model.predict(each, torch.full((50, 1), 0.05))[0][k] for k, each in enumerate(states)]
            states = torch.stack(steps)
        return float((states[..., 1] - 1).abs().mean())

    alone, together = error(0), error(4)
    assert together < 0.1
    assert together < alone / 2


def test_training_on_imagined_states_continues_bit_exactly():
    observations, actions, rows = gates(30)
    config = replace(SMALL, imagined=3)
    whole = GaussianEnsemble(2, 1, config, seed=1)
    whole.add(observations, actions, rows)
    whole.update(observations, actions, 20)
    first = GaussianEnsemble(2, 1, config, seed=1)
    first.add(observations, actions, rows)
    first.update(observations, actions, 8)
    second = GaussianEnsemble(2, 1, config, seed=5)
    second.load(first.state())
    second.update(observations, actions, 12)
    for one, other in zip(whole.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(one, other)
