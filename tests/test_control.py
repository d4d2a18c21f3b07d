"""Controllers and the agent: made from a run, the same bits from the same seed, clear refusals."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import curioplan
from curioplan.config import ExploreConfig, ReachConfig
from curioplan.envs import make_env, make_task
from curioplan.errors import ConfigError, CurioplanError
from curioplan.graph import AggregatedValue, Wayfinder
from curioplan.graph.objectives import aggregate, aggregate_pruned
from curioplan.presets import preset
from curioplan.stages.control import CONTROLLERS, Agent, Parts, make_controller
from curioplan.stages.train import load_values, train
from curioplan.values import learner_config, trained

GOAL = (0.8, 0.8)
SMOKE = preset("smoke", ReachConfig)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained run in the small maze; good for nothing but complete."""
    folder = tmp_path_factory.mktemp("runs") / "maze"
    explore = replace(preset("smoke", ExploreConfig), steps=900, warmup_steps=870)
    curioplan.explore("maze_umaze", folder, explore, progress=False)
    for name, changes in (("plain", {"quick_units": 0, "p_state": 0.0}), ("whole", {})):
        config = replace(learner_config("td3", "smoke"), updates=60, threads=1, **changes)
        train(folder, "td3", config, name=name, progress=False)
    train(folder, "iql", replace(learner_config("iql", "smoke"), updates=30, threads=1), progress=False)
    return folder


def controller(run, name, values="whole", **changes):
    config = replace(SMOKE, **changes)
    return make_controller(name, Parts(run, make_task("maze_umaze"), config, values_name=values))


def states(count):
    env = make_env("maze_umaze")
    return torch.stack(
        [torch.tensor(env.reset(seed=seed)[0]["observation"], dtype=torch.float32) for seed in range(count)]
    )


@pytest.mark.parametrize("name", CONTROLLERS)
def test_every_controller_acts_within_bounds_and_repeats_itself(run, name):
    goals = torch.tensor([GOAL, (2.8, 0.8)])
    actions = []
    for _ in range(2):
        acting = controller(run, name)
        acting.reset(goals, [1, 2])
        actions.append(torch.stack([acting.act(states(2)) for _ in range(3)]))
    assert torch.equal(*actions)
    assert actions[0].abs().max() <= 1
    assert torch.isfinite(actions[0]).all()


@pytest.mark.parametrize("name", CONTROLLERS)
def test_an_episode_comes_out_the_same_beside_others(run, name):
    goals, here = torch.tensor([GOAL, (2.8, 0.8), (0.8, 2.8)]), states(3)
    together, alone = controller(run, name), controller(run, name)
    together.reset(goals, [5, 6, 7])
    alone.reset(goals[1:2], [6])
    for _ in range(3):
        beside = together.act(here[[2, 1]], [2, 1])[1]
        assert torch.allclose(beside, alone.act(here[1:2])[0], atol=1e-4)


def test_the_agent_takes_what_the_environment_gives(run):
    agent = Agent.load(run, values="whole", config=SMOKE)
    env = make_env("maze_umaze")
    observation, _ = env.reset(seed=0)
    agent.reset(GOAL)
    first = agent.act(observation)
    assert env.action_space.contains(first)
    agent.reset(GOAL)
    assert np.array_equal(agent.act(observation["observation"]), first)


def test_any_learner_works_under_a_planner(run):
    agent = Agent.load(run, "mbp+graph", algo="iql", config=SMOKE)
    agent.reset(GOAL)
    assert np.isfinite(agent.act(states(1)[0])).all()


def test_the_graph_is_kept_with_the_values_and_needs_no_data_then(run, monkeypatch):
    before = controller(run, "mbp+graph")
    monkeypatch.setattr("curioplan.stages.control.gather", lambda *_, **__: pytest.fail("data were read"))
    again = controller(run, "mbp+graph")
    for acting in (before, again):
        acting.reset(torch.tensor([GOAL]), [0])
    assert torch.equal(before.act(states(1)), again.act(states(1)))


def test_another_value_function_or_setting_makes_another_graph(run):
    folder = run / "values" / "whole" / "graphs"
    controller(run, "mbp+graph")
    known = set(folder.iterdir())
    controller(run, "mbp+graph", graph=replace(SMOKE.graph, near_vertices=7))  # looks at the same graph
    assert set(folder.iterdir()) == known
    controller(run, "mbp+graph", graph=replace(SMOKE.graph, vertices=40))
    controller(run, "mbp+graph", seed=1)
    assert len(set(folder.iterdir()) - known) == 2


def test_the_graph_can_be_looked_at(run):
    agent = Agent.load(run, "mbp+graph", values="whole", config=SMOKE)
    agent.reset(GOAL)
    agent.act(states(1)[0])
    graph = agent.graph
    assert graph.vertices.shape == (50, 4)
    assert graph.lengths.shape == (50, 50)
    assert all(0 <= vertex < 50 for vertex in graph.path)
    assert graph.threshold >= 0


def test_edges_may_lead_to_whole_states(run):
    through = replace(SMOKE.graph, through="states")
    acting = controller(run, "mbp+graph", graph=through)
    acting.reset(torch.tensor([GOAL]), [0])
    assert torch.isfinite(acting.act(states(1))).all()


def test_quick_distances_approach_the_learners_own(run):
    values = load_values(run, name="whole")
    goals = values.task_goals(torch.tensor([GOAL, (2.0, 1.0)]))
    exact, quick = (each.distances(states(3), goals) for each in (values, values.for_graph("quick")))
    pairs = values.distance(states(3).repeat_interleave(2, 0), goals.repeat(3, 1)).view(3, 2)
    assert torch.allclose(exact, pairs, rtol=1e-4)
    network = values.learner.networks["quick"]
    problem = values.learner.problem
    inputs = torch.cat(
        [
            problem.states.normalise(states(3)).repeat_interleave(2, 0),
            problem.goals.normalise(goals).repeat(3, 1),
        ],
        1,
    )
    direct = torch.nn.functional.logsigmoid(network.infer(inputs)[0, :, 0]).view(3, 2) / np.log(values.gamma)
    assert torch.allclose(quick, direct, rtol=1e-4)


@pytest.mark.parametrize("error", [-5.0, 5.0])  # of the log-odds: edges too long, and too short
@pytest.mark.parametrize(("each", "count"), [(250, 24), (1, 12)])  # a quarter of 96, or one per state
def test_the_shortest_quick_edges_are_checked_by_the_learners_own(run, error, each, count, monkeypatch):
    monkeypatch.setattr(trained, "_CHECKED_EACH", each)
    values = load_values(run, name="whole")
    list(values.learner.networks["quick"].parameters())[-1].data += error
    here, goals = states(12), values.task_goals(states(8)[:, :2])
    exact, quick, edges = (
        measure(here, goals)
        for measure in (
            values.distances,
            values.for_graph("quick").edges,
            values.for_graph("checked").edges,
        )
    )
    shortest = quick <= quick.flatten().sort().values[count - 1]
    assert shortest.sum() == count
    assert torch.allclose(edges, torch.where(shortest, torch.maximum(quick, exact), quick))
    assert torch.equal(edges > quick, shortest if error > 0 else torch.zeros_like(shortest))
    assert torch.equal(values.for_graph("checked").distances(here, goals), quick)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"controller": "mbp+grph"}, "There is no controller mbp"),
        ({"values": "none"}, "no values of none"),
        ({"model": "none"}, "no finished model none"),
    ],
)
def test_what_is_not_there_is_said(run, change, sentence):
    with pytest.raises(CurioplanError, match=sentence):
        Agent.load(run, **{"values": "whole", "config": SMOKE} | change)


def test_values_that_know_no_whole_states_or_have_no_quick_network_say_so(run):
    exact = replace(SMOKE.graph, evaluate="exact", through="states")
    with pytest.raises(ConfigError, match="p_state"):
        controller(run, "mbp+graph", values="plain", graph=exact)
    with pytest.raises(ConfigError, match="quick_units"):
        controller(run, "mbp+graph", values="plain")


def test_an_agent_refuses_what_is_no_goal_or_observation(run):
    agent = Agent.load(run, "actor", values="plain")
    with pytest.raises(CurioplanError, match="no goal yet"):
        agent.act(np.zeros(4))
    for goal in ((1.0,), (np.nan, 0.0), "there"):
        with pytest.raises(CurioplanError, match="The goal must"):
            agent.reset(goal)
    agent.reset(GOAL)
    with pytest.raises(CurioplanError, match="The observation must hold 4 finite numbers"):
        agent.act(np.zeros(3))
    with pytest.raises(CurioplanError, match="graph"):
        _ = agent.graph


@pytest.mark.parametrize("threshold", [0.5, 5.0, 60.0])
def test_pruned_aggregation_equals_that_of_all_edges(run, threshold):
    values, generator = load_values(run, name="plain"), torch.Generator().manual_seed(0)
    here = states(40) + torch.rand(40, 4, generator=generator)
    targets = torch.rand(30, 2, generator=generator) * 3
    remaining = torch.rand(30, generator=generator) * 80
    lengths = values.distances(here, targets) + 1
    promise = lengths[0] + remaining
    pruned = aggregate_pruned(values, here, targets, remaining, threshold, promise, 1.0)
    assert torch.allclose(pruned, aggregate(lengths, remaining, threshold), rtol=1e-4)


def test_exact_plans_evaluate_only_edges_that_can_win_and_find_the_same(run, monkeypatch):
    parts = Parts(run, make_task("maze_umaze"), SMOKE, values_name="plain")
    config = replace(SMOKE.graph, evaluate="exact", through="goals")
    values, here, others = parts.values(), states(1)[0], states(60)
    finder = Wayfinder(values, parts.graph(values, config), torch.tensor([GOAL]), arrival=1.0)
    at = finder.locate(0, here)
    remaining = torch.from_numpy(finder.routes(0).ways(at.threshold).remaining).float()
    targets = torch.cat([finder.graph.targets, finder.goals])
    lengths = finder.lengths(others, targets)
    evaluated, within = [], values.distances_within
    monkeypatch.setattr(
        values, "distances_within", lambda *pairs: (evaluated.append(len(pairs[0])), within(*pairs))[1]
    )
    found = AggregatedValue(finder).distance(0, here, others, 10)
    expected = aggregate(lengths, torch.cat([remaining, torch.zeros(1)]), at.threshold)
    assert torch.allclose(found, expected / finder.graph.detour, rtol=1e-4)
    assert 0 < sum(evaluated) < 0.75 * lengths.numel()  # values after 60 updates tell little apart
