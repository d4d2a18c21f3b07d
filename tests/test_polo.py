"""POLO: values that doubt, targets that are exact where the world is, and runs that survive interruption."""

import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import curioplan
from curioplan.config import ExploreConfig, PlannerConfig
from curioplan.envs import make_env, make_task
from curioplan.envs.task import Case, Task, Within
from curioplan.errors import ConfigError
from curioplan.metrics import read_metrics
from curioplan.planning import ModelRollout
from curioplan.presets import preset
from curioplan.stages.polo import PoloExplorer, PoloValues, known_goals, polo_config
from curioplan.storage import read_json
from curioplan.values.polo import POLO
from tabular import Chain

VALUES = PoloValues(members=3, layers=2, units=64, learning_rate=3e-3, polyak=0.95, batch_size=64)
TINY = replace(polo_config("smoke"), steps=700, warmup_steps=250, checkpoint_every=1, horizon=10, seed=4)


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def test_on_policy_values_of_the_shortest_way_are_powers_of_gamma():
    chain = Chain()
    learner = POLO(chain.problem, VALUES.learner(0), [0, 1])
    source = generators(5, 6)
    for _ in range(400):
        learner.update(chain.batch(64, source, "mixed", share=1.0))
    found = learner.value(*chain.pairs()).view(2, 6, 6)
    torch.testing.assert_close(found, chain.values().expand(2, 6, 6), rtol=0, atol=0.03)
    assert found[0, 0, 5].item() == pytest.approx(chain.gamma**4, abs=0.03)  # five steps away


def test_members_agree_on_what_was_learned_and_doubt_the_rest():
    chain = Chain()
    learner = POLO(chain.problem, VALUES.learner(0), [0])
    states, goals = chain.pairs()
    source, known = generators(5), torch.tensor([0, 1, 2])
    for _ in range(300):
        batch = chain.batch(64, source, "mixed", share=1.0)
        batch.goals = torch.eye(6)[known[torch.randint(3, (1, 64), generator=source[0])]]
        batch.rewards = batch.terminals = (batch.next_observations == batch.goals).all(-1).float()
        learner.update(batch)
    doubt = learner.target_values(states, goals)[0].std(0).view(6, 6)
    assert doubt[:, :3].mean() < 0.3 * doubt[:, 3:].mean()


def test_optimism_lies_between_the_mean_of_the_members_and_their_maximum():
    chain = Chain()
    states, goals = chain.pairs()
    found = []
    for kappa in (1e-3, 5.0, 1e4):
        learner = POLO(chain.problem, replace(VALUES, optimism=kappa).learner(0), [0])
        found.append(learner.optimistic(states, goals)[0])
    members = learner.target_values(states, goals)[0]
    torch.testing.assert_close(found[0], members.mean(0), rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(found[2], members.amax(0), rtol=1e-2, atol=1e-3)
    assert (found[0] <= found[1] + 1e-3).all()
    assert (found[1] <= found[2] + 1e-3).all()
    torch.testing.assert_close(learner.value(states, goals)[0], members.mean(0))


def chain_explorer(chain, **changes):
    """An exploration of the chain that knows the goals 0, 3 and 5, with data of all states."""
    one_hots = torch.eye(chain.states)
    task = Task(
        "chain",
        "none",
        *(chain.states, chain.states, (-1.0,), (1.0,), 10),
        success=Within(0.5),
        gamma=chain.gamma,
        reach_horizon=2,
        goal_indices=tuple(range(chain.states)),
        cases=tuple(Case(str(k), goal=tuple(one_hots[k].tolist())) for k in (0, 3, 5, 5)),
    )
    explorer = PoloExplorer(None, task, replace(TINY, values=VALUES, **changes))
    for state in one_hots:
        explorer.store.begin(state.numpy(), state.numpy())
        explorer.store.step([1.0], state.numpy(), state.numpy())
    explorer.learner.problem.states.update(one_hots)
    explorer.learner.problem.goals.update(one_hots)
    return explorer


def test_values_by_planning_in_an_exact_model_are_powers_of_gamma_for_the_known_goals():
    chain = Chain()
    planner = PlannerConfig(method="mppi", population=16, iterations=1, temperature=0.1, noise_exponent=1.0)
    explorer = chain_explorer(chain, targets="mppi", target_planner=planner)
    assert explorer.goals.argmax(1).tolist() == [0, 3, 5]
    explorer.target_planner.dynamics = ModelRollout(chain.model(), "mean")
    for _ in range(300):
        explorer.update_values()
    found, exact = explorer.learner.value(*chain.pairs())[0].view(6, 6), chain.values()
    found[3, 3] = exact[3, 3]  # to leave and come back there are two ways, between which a mean stands still
    torch.testing.assert_close(found[:, [0, 3, 5]], exact[:, [0, 3, 5]], rtol=0, atol=0.06)


def test_attained_returns_are_those_that_walking_along_the_data_gives():
    explorer = PoloExplorer(None, make_task("maze_umaze"), replace(TINY, target_horizon=4))
    store, rng = explorer.store, np.random.default_rng(0)
    for length in (3, 9, 6):
        points = rng.uniform(0.8, 2.2, (length, 4))
        store.begin(points[0], points[0, :2])
        for point in points[1:]:
            store.step([0.0, 0.0], point, point[:2])
    rows = store.transition_rows
    goals = torch.tensor(rng.uniform(0.8, 2.2, (len(rows), 2)), dtype=torch.float32)
    found, gamma = explorer.attained(store, rows, goals), explorer.learner.problem.gamma
    for k, (row, goal) in enumerate(zip(rows.tolist(), goals, strict=True)):
        last = int(store.last_rows[store.episode_of[row]])
        for step in range(1, 5):
            if (store.achieved_goals[row + step] - goal).norm() < 0.5:
                expected = torch.full((3,), gamma ** (step - 1))
                break
            if step == 4 or row + step == last:
                future = explorer.learner.target_values(store.observations[[row + step]], goal[None])
                expected = gamma**step * future[0, :, 0]
                break
        torch.testing.assert_close(found[0, :, k], expected)


def outcome(out):
    """The bytes of everything that is left."""
    names = ("explore/data/main_data.hdf5", "explore/model.safetensors", "explore/metrics.jsonl")
    return {name: (out / name).read_bytes() for name in (*names, "values/polo-4/seed-4.safetensors")}


@pytest.fixture(scope="module", params=["on-policy", "mppi"])
def ran(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("polo") / "run"
    config = replace(TINY, targets=request.param)
    curioplan.polo("maze_umaze", out, config, progress=False)
    return out, config


def test_a_run_leaves_data_a_model_and_values_that_can_be_evaluated(ran):
    out, _ = ran
    store = curioplan.load_data(out / "explore" / "data", make_task("maze_umaze"))
    assert store.transitions == 700
    rows = list(read_metrics(out / "explore"))
    assert rows[-1]["values/td_error"] < 0.5
    assert {row["reached"] for row in rows} <= {0, 1}
    reach = replace(preset("smoke", curioplan.EvaluateConfig).reach, horizon=5)
    folder = curioplan.evaluate(out, "mbp", algo="polo", seed=4, config=reach, progress=False)
    assert 0 <= read_json(folder / "result.json")["success"] <= 1
    agent = curioplan.Agent.load(out, "actor", algo="polo", seed=4)
    agent.reset([1.0, 1.0])
    with pytest.raises(ConfigError, match="POLO has no policy"):
        agent.act(np.zeros(4))


def test_interrupted_after_an_episode_it_ends_with_the_same_bytes(ran, tmp_path, monkeypatch):
    out, config = ran
    whole = PoloExplorer.episode

    def episode(self, bar=None):
        if self.store.transitions >= 500:
            raise KeyboardInterrupt
        whole(self, bar)

    with monkeypatch.context() as patched:
        patched.setattr(PoloExplorer, "episode", episode)
        with pytest.raises(KeyboardInterrupt):
            curioplan.polo("maze_umaze", tmp_path / "run", config, progress=False)
    curioplan.polo("maze_umaze", tmp_path / "run", config, progress=False)
    assert outcome(tmp_path / "run") == outcome(out)


def test_killed_by_the_system_the_command_ends_with_the_same_bytes(tmp_path):
    script = "import sys; from curioplan.cli import main; sys.exit(main())"
    given = {"preset": "smoke", "steps": 700, "warmup-steps": 250, "checkpoint-every": 1, "horizon": 10}
    words = [f"--{name}={value}" for name, value in (given | {"seed": 4}).items()]

    def start(out):
        command = [sys.executable, "-c", script, "polo", "maze_umaze", "--out", str(out), *words]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    curioplan.polo("maze_umaze", tmp_path / "whole", TINY, progress=False)
    process = start(tmp_path / "broken")
    checkpoints = tmp_path / "broken" / "explore" / "checkpoints"
    while not list(checkpoints.glob("*.json")) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert start(tmp_path / "broken").wait() == 0
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")


def test_an_episode_ends_where_its_goal_is_reached():
    explorer = PoloExplorer(make_env("maze_umaze"), make_task("maze_umaze"), replace(TINY, warmup_steps=700))
    reset = explorer.env.reset

    def there(**options):
        goal = explorer.goal.numpy().astype(float)
        return reset(**options, options={"state": np.array([*goal, 0.0, 0.0])})

    explorer.env.reset = there
    explorer.episode()
    assert explorer.store.transitions == 1


def test_goals_must_be_known_and_value_is_not_an_explorer_of_explore(tmp_path):
    with pytest.raises(ConfigError, match="has no cases"):
        known_goals(replace(make_task("maze_umaze"), cases=()))
    with pytest.raises(ConfigError, match="curioplan polo"):
        curioplan.explore("maze_umaze", tmp_path, replace(preset("smoke", ExploreConfig), explorer="value"))
