import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curioplan.config import PlannerConfig
from curioplan.errors import ConfigError, CurioplanError
from curioplan.planning import Planner, Rollout
from curioplan.planning.icem import shift
from curioplan.planning.noise import coloured_noise, colouring_matrix

LOW, HIGH = torch.tensor([-2.0]), torch.tensor([2.0])


class Linear:
    """Exact dynamics s' = A s + B a, with a spread on demand; remembers the populations it was shown."""

    A = torch.tensor([[1.0, 0.2], [0.0, 1.0]])
    B = torch.tensor([[0.0], [0.2]])

    def __init__(self, spread=lambda actions: torch.zeros(actions.shape[:2])):
        self.spread, self.populations = spread, []

    def rollout(self, states, actions, generators, *, disagreement):
        self.populations.append(actions.clone())
        path = [states.unsqueeze(1).expand(-1, actions.shape[1], -1)]
        for t in range(actions.shape[2]):
            path.append(path[-1] @ self.A.t() + actions[:, :, t] @ self.B.t())
        return Rollout(torch.stack(path, 2).unsqueeze(2), None, self.spread(actions))


class Quadratic:
    """−Σ_t (‖s_{t+1}‖² + 0.1 ‖a_t‖²)."""

    needs_disagreement = False

    def __call__(self, rollout, actions, slots):
        return -(rollout.states[:, :, 0, 1:].square().sum((2, 3)) + 0.1 * actions.square().sum((2, 3)))


class Follow:
    """Minus the squared distance of the actions to a target sequence, plus anything else."""

    needs_disagreement = False

    def __init__(self, target, worth=lambda values, actions: values):
        self.target, self.worth = target, worth

    def __call__(self, rollout, actions, slots):
        return self.worth(-(actions - self.target).square().sum((2, 3)), actions)


def optimum(state, horizon):
    """Least-squares solution of the linear-quadratic problem: its actions and its value."""
    a, b = Linear.A.double(), Linear.B.double()
    powers = [torch.linalg.matrix_power(a, t) for t in range(horizon + 1)]
    free = torch.cat([p @ state.double() for p in powers[1:]])
    forced = torch.zeros(2 * horizon, horizon, dtype=torch.float64)
    for t in range(horizon):
        for s in range(t + 1):
            forced[2 * t : 2 * t + 2, s] = (powers[t - s] @ b)[:, 0]
    hessian = forced.t() @ forced + 0.1 * torch.eye(horizon, dtype=torch.float64)
    actions = torch.linalg.solve(hessian, -forced.t() @ free)
    return actions, -((free + forced @ actions).square().sum() + 0.1 * actions.square().sum())


def planner(config, horizon=8, dynamics=None, objective=None, low=LOW, high=HIGH):
    return Planner(config, horizon, low, high, dynamics or Linear(), objective or Quadratic())


@pytest.mark.parametrize("method", ["icem", "cem"])
def test_the_optimum_of_a_linear_quadratic_problem_is_found(method):
    config = PlannerConfig(
        method=method, iterations=25, population=300, elite_ratio=0.1, momentum=0.1, noise_exponent=0.5
    )
    states = torch.tensor([[0.8, 0.0], [-0.5, 0.4], [0.0, -0.7]])
    plan = planner(config, low=2 * LOW, high=2 * HIGH)
    plan.reset([0, 1, 2])
    first = plan.act(states)
    for b, state in enumerate(states):
        actions, value = optimum(state, 8)
        assert actions.abs().max() < 4  # the bounds are not in the way
        mean = plan._mean[b]
        reached = Quadratic()(
            Linear().rollout(state[None], mean[None, None], [], disagreement=False), mean[None, None], None
        )
        assert reached.item() == pytest.approx(value.item(), rel=0.01)
        assert first[b].item() == pytest.approx(actions[0].item(), abs=0.1)
        assert plan.report.elite_values[b, 0].item() <= value.item() * (1 - 1e-4)


def test_mppi_finds_the_optimum_of_a_linear_quadratic_problem_up_to_its_noise():
    config = PlannerConfig(
        method="mppi", iterations=60, population=400, initial_std=0.04, temperature=0.5, noise_exponent=0.0
    )
    states = torch.tensor([[0.8, 0.0], [-0.5, 0.4], [0.0, -0.7]])
    plan = planner(config, low=2 * LOW, high=2 * HIGH)
    plan.reset([0, 1, 2])
    plan.act(states)
    for state, found in zip(states, plan.plans, strict=True):
        actions, value = optimum(state, 8)
        rollout = Linear().rollout(state[None], found[None, None], [], disagreement=False)
        assert Quadratic()(rollout, found[None, None], None).item() == pytest.approx(value.item(), rel=0.03)
        torch.testing.assert_close(found[:, 0].double(), actions, rtol=0, atol=0.25)


def test_the_mean_of_mppi_is_weighted_by_the_exponential_of_worth():
    config = PlannerConfig(method="mppi", population=30, iterations=1, temperature=0.7, noise_exponent=0.0)
    dynamics, target = Linear(), torch.full((4, 1), 0.5)
    plan = planner(config, 4, dynamics, Follow(target))
    plan.reset([0])
    plan.act(torch.zeros(1, 2))
    population = dynamics.populations[0][0].double()
    worth = -(population - target).square().sum((1, 2))
    weights = torch.exp((worth - worth.max()) / (0.7 * worth.std(correction=0)))
    expected = (weights[:, None, None] * population).sum(0) / weights.sum()
    torch.testing.assert_close(plan.plans[0], expected.float(), rtol=1e-4, atol=1e-5)


def test_mppi_gets_greedier_as_it_gets_colder():
    plans = []
    for temperature in (1e-4, 1e4):
        config = PlannerConfig(method="mppi", population=30, iterations=1, temperature=temperature)
        dynamics = Linear()
        plan = planner(config, 4, dynamics, Follow(torch.ones(4, 1)))
        plan.reset([0])
        plan.act(torch.zeros(1, 2))
        plans.append((plan.plans[0], dynamics.populations[0][0]))
    (cold, population), (hot, _) = plans
    best = (-(population - 1).square().sum((1, 2))).argmax()
    torch.testing.assert_close(cold, population[best])
    torch.testing.assert_close(hot, population.mean(0), rtol=0, atol=1e-3)


def test_mppi_gives_no_weight_to_what_is_discarded_or_not_finite():
    plan = planner(PlannerConfig(method="mppi", variance_limit=100.0))
    values = torch.tensor([[1.0, 5.0, math.nan, math.inf], [1.0, 2.0, 3.0, 4.0], [2.0, 2.0, 2.0, 2.0]])
    spread = torch.tensor([[0.0, 500.0, 0.0, 0.0], [900.0, 200.0, 300.0, math.nan], [0.0, 0.0, 0.0, 0.0]])
    weights = plan.weigh(values, spread, plan.rank(values, spread)[:, 0])
    assert weights.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0.25] * 4]


@pytest.mark.parametrize("method", ["icem", "mppi"])
def test_closed_loop_planning_drives_the_linear_system_to_rest(method):
    config = PlannerConfig(method=method, population=100, elite_ratio=0.05)
    plan, state = planner(config), torch.tensor([[1.0, 0.0]])
    plan.reset([3])
    for _ in range(40):
        state = state @ Linear.A.t() + plan.act(state) @ Linear.B.t()
    assert state.norm() < 0.05


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0])
def test_noise_has_unit_variance_and_the_stated_spectrum(exponent):
    horizon = 64
    noise = coloured_noise(4000, horizon, 2, exponent, [torch.Generator().manual_seed(0)])
    assert noise.shape == (1, 4000, horizon, 2)
    torch.testing.assert_close(noise.var((0, 1, 3)), torch.ones(horizon), rtol=0.1, atol=0)
    power = torch.fft.rfft(noise[0], dim=1).abs().square().mean((0, 2))[1:-1].log()
    frequency = torch.arange(1, horizon // 2).float().log()
    slope = torch.linalg.lstsq(
        torch.stack([frequency, torch.ones_like(frequency)], 1), power[:, None]
    ).solution
    assert slope[0].item() == pytest.approx(-exponent, abs=0.05)


@settings(max_examples=40, deadline=None)
@given(horizon=st.integers(1, 40), exponent=st.floats(0, 4))
def test_noise_has_unit_variance_exactly_for_any_horizon(horizon, exponent):
    matrix = colouring_matrix(horizon, exponent)
    torch.testing.assert_close(matrix.square().sum(0), torch.ones(horizon))
    if exponent == 0:
        torch.testing.assert_close(matrix, torch.eye(horizon))


@settings(max_examples=30, deadline=None)
@given(
    low=st.floats(-3, 0),
    width=st.floats(0, 3),
    seed=st.integers(0, 99),
    method=st.sampled_from(["icem", "cem", "mppi"]),
    execute=st.sampled_from(["mean", "best"]),
)
def test_bounds_are_respected(low, width, seed, method, execute):
    dynamics = Linear()
    bounds = torch.tensor([low]), torch.tensor([low]) + width
    config = PlannerConfig(method=method, execute=execute, population=20, initial_std=2.0, iterations=2)
    plan = planner(config, 4, dynamics, None, *bounds)
    plan.reset([seed])
    for _ in range(3):
        action = plan.act(torch.tensor([[1.0, 1.0]]))
        assert bounds[0] <= action[0] <= bounds[1]
    assert all(((bounds[0] <= p) & (p <= bounds[1])).all() for p in dynamics.populations)


def test_populations_shrink_by_the_decay_but_hold_twice_the_elites():
    config = PlannerConfig(population=100, population_decay=0.5, elite_ratio=0.1, iterations=5)
    dynamics = Linear()
    plan = planner(config, dynamics=dynamics)
    plan.reset([0])
    plan.act(torch.zeros(1, 2))
    assert plan.population_sizes == [100, 50, 25, 20, 20]
    assert [p.shape[1] for p in dynamics.populations] == plan.population_sizes


@pytest.mark.parametrize(
    ("population", "ratio", "elites", "kept"),
    [(400, 0.01, 4, 1), (100, 0.01, 2, 1), (100, 0.1, 10, 3), (10, 1.0, 10, 3)],
)
def test_there_are_at_least_two_elites_and_thirty_percent_are_kept(population, ratio, elites, kept):
    plan = planner(PlannerConfig(population=population, elite_ratio=ratio))
    assert (plan.elite_count, plan.kept_count) == (elites, kept)


def test_the_refit_mixes_the_elites_with_the_old_distribution():
    config = PlannerConfig(population=50, elite_ratio=0.1, momentum=0.25, iterations=1, keep_fraction=0.0)
    dynamics, target = Linear(), torch.full((4, 1), 0.5)
    plan = planner(config, 4, dynamics, Follow(target))
    plan.reset([0])
    action = plan.act(torch.zeros(1, 2))
    population = dynamics.populations[0][0]
    values = -(population - target).square().sum((1, 2))
    elites = population[values.argsort(descending=True)[:5]]
    expected = 0.75 * elites.mean(0) + 0.25 * 0.0
    torch.testing.assert_close(plan._mean[0], expected)
    torch.testing.assert_close(action[0], expected[0])


def test_the_next_iteration_samples_around_the_refitted_distribution():
    config = PlannerConfig(
        population=4000, elite_ratio=0.05, momentum=0.5, iterations=2, keep_fraction=0.0, noise_exponent=0.0
    )
    dynamics, target = Linear(), torch.full((2, 1), 0.5)
    plan = planner(config, 2, dynamics, Follow(target))
    plan.reset([0])
    plan.act(torch.zeros(1, 2))
    first, second = (p[0] for p in dynamics.populations)
    elites = first[(-(first - target).square().sum((1, 2))).argsort(descending=True)[:200]]
    mean = 0.5 * elites.mean(0)
    std = 0.5 * elites.std(0, correction=0) + 0.5 * 1.0  # a quarter of the range of 4
    torch.testing.assert_close(second[0], mean)  # the mean enters the last population
    torch.testing.assert_close(second[1:].mean(0), mean, rtol=0, atol=0.06)
    torch.testing.assert_close(second[1:].std(0), std, rtol=0.06, atol=0)


def test_kept_elites_enter_the_next_iteration_and_shifted_the_next_step():
    config = PlannerConfig(population=40, elite_ratio=0.25, iterations=3)
    dynamics, target = Linear(), torch.linspace(-1, 1, 6).unsqueeze(1)
    plan = planner(config, 6, dynamics, Follow(target))
    plan.reset([1])
    plan.act(torch.zeros(1, 2))

    def best(population):
        return population[(-(population - target).square().sum((1, 2))).argsort(descending=True)[:3]]

    first, second, third = (p[0] for p in dynamics.populations)
    assert torch.equal(second[:3], best(first))
    assert torch.equal(third[:3], best(second))
    mean = plan._mean[0].clone()
    plan.act(torch.zeros(1, 2))
    fourth, sixth = dynamics.populations[3][0], dynamics.populations[5][0]
    assert torch.equal(fourth[:3, :-1], best(third)[:, 1:])
    assert len(fourth[:3, -1].unique()) == 3  # last actions are drawn afresh
    around = fourth[3:].mean(0)
    torch.testing.assert_close(around, shift(mean, 1), rtol=0, atol=1.0)
    assert sixth.shape == (40, 6, 1)


def test_shifting_moves_ahead_in_time_and_repeats_the_last_entry():
    sequence = torch.arange(4.0).view(1, 4, 1)
    assert shift(sequence, 1).flatten().tolist() == [1, 2, 3, 3]
    assert shift(sequence, 3).flatten().tolist() == [3, 3, 3, 3]


def test_a_plan_starts_from_the_shifted_mean_with_a_fresh_deviation():
    config = PlannerConfig(population=10, initial_std=1e-9)  # all samples lie on the mean
    plan = planner(config, 3, objective=Follow(torch.zeros(3, 1)))
    plan.reset([0])
    plan.act(torch.zeros(1, 2))
    plan._mean[0] = torch.tensor([[0.1], [0.2], [0.3]])
    plan._kept[0] = plan._mean[0]
    plan.act(torch.zeros(1, 2))
    torch.testing.assert_close(
        plan.dynamics.populations[3][0, :, :2, 0], torch.tensor([[0.2, 0.3]]).expand(10, 2)
    )


def test_cem_has_no_memory():
    config = PlannerConfig(method="cem", population=30, iterations=2)
    dynamics = Linear()
    plan = planner(config, dynamics=dynamics)
    plan.reset([0])
    plan.act(torch.zeros(1, 2))
    generator_state = plan._generators[0].get_state()
    plan.act(torch.zeros(1, 2))
    later = dynamics.populations[2]
    plan.reset([0])
    plan._generators[0].set_state(generator_state)
    plan.act(torch.zeros(1, 2))
    assert torch.equal(dynamics.populations[4], later)


def test_the_best_sequence_is_executed_on_demand():
    config = PlannerConfig(population=50, execute="best")
    dynamics, target = Linear(), torch.full((4, 1), 0.5)
    plan = planner(config, 4, dynamics, Follow(target))
    plan.reset([0])
    action = plan.act(torch.zeros(1, 2))
    last = dynamics.populations[-1][0]
    assert torch.equal(action[0], last[(-(last - target).square().sum((1, 2))).argmax(), 0])


def test_sequences_that_spread_too_far_are_discarded():
    dynamics = Linear(spread=lambda actions: torch.where(actions[:, :, 0, 0] > 0, 1000.0, 0.0))
    plan = planner(PlannerConfig(population=60), 4, dynamics, Follow(torch.full((4, 1), 2.0)))
    plan.reset([0])
    assert plan.act(torch.zeros(1, 2)).item() <= 0  # though positive actions are worth more
    assert 0 < plan.report.discarded.item() < 1


def test_ranking_puts_the_discarded_by_spread_and_what_is_not_finite_last():
    plan = planner(PlannerConfig(variance_limit=100.0))
    values = torch.tensor([[1.0, 5.0, 9.0, math.nan, 2.0, math.inf, -3e38, 8.0]])
    spread = torch.tensor([[0.0, 500.0, 200.0, 0.0, 100.0, 0.0, 0.0, math.nan]])
    assert plan.rank(values, spread)[0, :5].tolist() == [4, 0, 6, 2, 1]


def test_values_that_are_not_finite_do_not_reach_the_plan():
    def spoil(values, actions):
        return torch.where(actions[:, :, 0, 0] > 0, math.nan, values)

    plan = planner(PlannerConfig(population=60), 4, objective=Follow(torch.ones(4, 1), spoil))
    plan.reset([0])
    action = plan.act(torch.zeros(1, 2))
    assert action.item() <= 0
    assert torch.isfinite(plan.report.mean_value).all()


def test_between_replans_the_rest_of_the_plan_is_executed():
    dynamics = Linear()
    plan = planner(PlannerConfig(population=30, iterations=1, replan_every=3), 5, dynamics)
    plan.reset([0])
    taken = [plan.act(torch.tensor([[0.5, 0.0]])) for _ in range(3)]
    assert len(dynamics.populations) == 1
    assert torch.equal(torch.cat(taken), plan._plan[0, :3])
    kept = plan._kept[0].clone()
    plan.act(torch.tensor([[0.5, 0.0]]))
    assert len(dynamics.populations) == 2
    assert torch.equal(dynamics.populations[1][0, :1, :2], kept[:, 3:])  # shifted by three


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), active=st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=6))
def test_an_episode_does_not_depend_on_when_others_act(seed, active):
    config = PlannerConfig(population=20, iterations=2, replan_every=2)
    states = torch.randn(3, 2, generator=torch.Generator().manual_seed(seed))
    together, alone = planner(config), planner(config)
    together.reset([10, 11, 12])
    alone.reset([11])
    for other in active:
        slots = sorted({1, other})
        actions = together.act(states[slots], slots)
        torch.testing.assert_close(actions[slots.index(1)], alone.act(states[1:2])[0], rtol=1e-4, atol=1e-5)


def test_resetting_a_slot_starts_its_episode_afresh():
    plan, states = planner(PlannerConfig(population=20)), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    plan.reset([5, 6])
    first = plan.act(states)
    second = plan.act(states)
    plan.reset([5], slots=[0])
    again = plan.act(states)
    torch.testing.assert_close(again[0], first[0])
    assert not torch.allclose(again[1], first[1])
    assert not torch.allclose(second[0], first[0])


def test_the_same_seed_gives_the_same_bits():
    plan, runs = planner(PlannerConfig(population=20)), []
    for seed in (5, 5, 6):
        plan.reset([seed])
        runs.append(torch.cat([plan.act(torch.tensor([[1.0, 0.0]])) for _ in range(3)]))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_the_report_describes_the_last_population():
    dynamics = Linear()
    plan = planner(PlannerConfig(population=20, elite_ratio=0.2), dynamics=dynamics)
    plan.reset([0, 1])
    state = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    plan.act(state)
    report, last = plan.report, dynamics.populations[-1]
    values = Quadratic()(dynamics.rollout(state, last, [], disagreement=False), last, None)
    torch.testing.assert_close(report.elite_values, values.sort(1, descending=True).values[:, :4])
    torch.testing.assert_close(report.mean_value, values.mean(1))
    assert report.elite_states.shape == (2, 4, 9, 2)
    torch.testing.assert_close(report.elite_states[:, :, 0], state.unsqueeze(1).expand(-1, 4, -1))


@pytest.mark.parametrize("change", [{"population": 3}, {"replan_every": 9}])
def test_settings_that_do_not_fit_are_refused(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        planner(replace(PlannerConfig(), **change))


@settings(max_examples=40, deadline=None)
@given(
    population=st.integers(4, 30),
    ratio=st.floats(0.01, 1.0),
    keep=st.floats(0.0, 1.0),
    decay=st.floats(0.1, 1.0),
    method=st.sampled_from(["icem", "cem", "mppi"]),
)
def test_populations_have_the_stated_size_whatever_the_settings(population, ratio, keep, decay, method):
    config = PlannerConfig(
        method=method, population=population, elite_ratio=ratio, keep_fraction=keep, population_decay=decay
    )
    dynamics = Linear()
    plan = planner(config, 3, dynamics)
    plan.reset([0])
    for _ in range(2):
        assert torch.isfinite(plan.act(torch.zeros(1, 2))).all()
    assert [p.shape[1] for p in dynamics.populations] == 2 * plan.population_sizes


def test_unbounded_actions_and_missing_episodes_are_refused():
    with pytest.raises(ConfigError, match="bounds"):
        planner(PlannerConfig(), low=torch.tensor([-math.inf]))
    plan = planner(PlannerConfig())
    with pytest.raises(CurioplanError, match="reset"):
        plan.act(torch.zeros(1, 2))
    plan.reset([0, 1])
    with pytest.raises(CurioplanError, match="slots"):
        plan.act(torch.zeros(1, 2))
