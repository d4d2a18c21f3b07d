"""Evaluation: what counts as success, what a case's randomness depends on, and what a stage leaves."""

import json
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import curioplan
from curioplan.analysis.statistics import mean_interval
from curioplan.cli import main
from curioplan.config import EvaluateConfig, ReachConfig
from curioplan.envs import Case, make_env, make_task
from curioplan.envs.fetch import GRIPPER, state_at_rest
from curioplan.envs.kitchen import INITIAL, OBJECTS
from curioplan.errors import ConfigError, EnvError, RunError
from curioplan.presets import preset
from curioplan.seeding import seed_for
from curioplan.stages.cases import case_key
from curioplan.stages.control import Parts, make_controller
from curioplan.stages.episodes import replay
from curioplan.stages.evaluate import default_name, evaluate, load_outcomes, run_cases, run_evaluation
from scripted import Guide, Idle, Presser, Restless

SMOKE = preset("smoke", EvaluateConfig)
TIMINGS = ("duration", "rate")


@pytest.fixture
def run(trained_run):
    return trained_run


def settings(**changes):
    return replace(SMOKE, **{"controller": "mbp", **changes})


def result(folder):
    """The result without what the clock says."""
    found = json.loads((folder / "result.json").read_text())
    for entry in (found, *found["cases"]):
        for key in TIMINGS:
            entry.pop(key, None)
    return found


def reached(outcomes):
    return sum(outcome.success for outcome in outcomes), len(outcomes)


def same(ours, theirs):
    """Whether two outcomes are the same to the last bit, clocks aside."""
    alike = replace(ours, seconds=0).record() == replace(theirs, seconds=0).record()
    return alike and all(torch.equal(a, theirs.tensors()[key]) for key, a in ours.tensors().items())


@pytest.mark.parametrize(
    ("name", "expected"),
    [("fetch_push", (2, 24)), ("kitchen", (0, 7)), ("maze_large", (0, 3)), ("pinpad", (0, 12))],
)
def test_doing_nothing_reaches_only_what_is_reached_already(name, expected):
    task = make_task(name)
    outcomes = run_cases(Idle(task), task, task.cases)
    assert reached(outcomes) == expected
    for outcome in outcomes:
        assert outcome.steps in (0, None), "what does not move arrives at once or never"
        assert len(outcome.actions) == (0 if outcome.success else task.episode_length)


@pytest.mark.parametrize(("name", "script"), [("maze_large", Guide), ("pinpad", lambda task: Presser())])
def test_knowing_the_way_reaches_every_goal(name, script):
    task = make_task(name)
    outcomes = run_cases(script(task), task, task.cases)
    assert reached(outcomes) == (len(task.cases),) * 2
    for outcome in outcomes:
        met = task.success(outcome.achieved_goals, torch.tensor(outcome.goal))
        assert met[-1]
        assert not met[:-1].any(), "an episode ends with its first success"
        assert len(outcome.observations) == len(outcome.actions) + 1 == outcome.steps + 1
        moves = outcome.observations[:, :2].double().diff(dim=0).norm(dim=1)
        assert outcome.path_length == pytest.approx(float(moves.sum()), rel=1e-3)
        assert outcome.rate > 0


def solved(name):
    """A case of a task from a start that meets its goal."""
    task = make_task(name)
    if name == "fetch_push":
        return [replace(case, state=state_at_rest(GRIPPER, case.goal)) for case in task.cases[:1]]
    cases = []
    for case in task.cases:
        state = list(INITIAL)
        for joint, place in zip(*OBJECTS[case.name], strict=True):
            state[joint] = place
        cases.append(replace(case, state=tuple(state)))
    return cases


@pytest.mark.parametrize("name", ["fetch_push", "kitchen"])
def test_a_start_that_meets_the_goal_is_a_success_without_a_step(name):
    task, cases = make_task(name), solved(name)
    outcomes = run_cases(Idle(task), task, cases)
    assert reached(outcomes) == (len(cases),) * 2
    for outcome in outcomes:
        assert (outcome.steps, outcome.path_length, outcome.rate) == (0, 0, None)
        assert len(outcome.actions) == 0


@pytest.mark.parametrize("name", ["pinpad", "fetch_push"])
def test_a_case_is_the_same_alone_in_a_batch_and_in_any_order(name):
    task = replace(make_task(name), episode_length=30)
    cases, script = list(task.cases[:5]), Restless(task)
    together = {outcome.case: outcome for outcome in run_cases(script, task, cases, seed=3)}
    shuffled = run_cases(script, task, [cases[k] for k in (3, 0, 4, 1, 2)], seed=3)
    some = run_cases(script, task, cases[1:3], seed=3)
    alone = [run_cases(script, task, [case], seed=3)[0] for case in cases]
    for outcome in (*shuffled, *some, *alone):
        assert same(outcome, together[outcome.case])
    other = run_cases(script, task, cases, seed=4)
    assert not any(torch.equal(outcome.actions, together[outcome.case].actions) for outcome in other)


@pytest.mark.parametrize("controller", ["actor", "mbp", "mbp+graph", "mbp+sparse"])
def test_a_planned_case_is_the_same_alone_and_in_a_batch_up_to_rounding(trained, controller):
    task = replace(make_task("maze_umaze"), episode_length=60)
    planner = make_controller(controller, Parts(trained, task, SMOKE.reach))
    together = {outcome.case: outcome for outcome in run_cases(planner, task, task.cases, seed=1)}
    for outcome in [
        *run_cases(planner, task, task.cases[::-1], seed=1),
        *(run_cases(planner, task, [case], seed=1)[0] for case in task.cases),
    ]:
        expected = together[outcome.case]
        assert outcome.steps == expected.steps
        torch.testing.assert_close(outcome.observations, expected.observations, rtol=0, atol=1e-3)


def test_equal_cases_draw_equal_numbers_whatever_type_they_are_written_in():
    task = replace(make_task("pinpad"), episode_length=5)
    whole = Case("mine", (1, 2, 1), (2, 2, 0, 0, 2, 3, 4), (0, 0, 0, 0, 0, 0, 0))
    floats = Case("mine", (1.0, 2.0, 1.0), (2.0, 2.0, 0.0, 0.0, 2.0, 3.0, 4.0), (0.0,) * 7)
    named = replace(whole, name="yours")
    first, second, third = (run_cases(Restless(task), task, [case])[0] for case in (whole, floats, named))
    assert same(first, second)
    assert not torch.equal(first.observations, third.observations)


def test_episodes_that_are_over_leave_the_batch():
    task = make_task("maze_umaze")
    guide = Guide(task)
    outcomes = run_cases(guide, task, task.cases)
    for slot, outcome in enumerate(outcomes):
        assert sum(slot in asked for asked in guide.asked) == outcome.steps
    assert guide.seeds == [seed_for(0, "planner", case_key(case)) for case in task.cases]


@pytest.mark.parametrize("name", ["pinpad", "fetch_push", "kitchen"])
def test_an_episode_can_be_lived_through_again(name):
    task = replace(make_task(name), episode_length=10)
    (outcome,) = run_cases(Restless(task), task, task.cases[2:3], seed=5)
    with closing(make_env(name)) as env:
        seen = [observation["observation"] for observation in replay(env, outcome)]
    np.testing.assert_array_equal(np.float32(seen), outcome.observations.numpy())


def test_actions_are_kept_within_bounds():
    class Wild(Idle):
        def one(self, slot, state):
            return np.array([7.0, -7.0])

    task = replace(make_task("maze_umaze"), episode_length=3)
    (outcome,) = run_cases(Wild(task), task, task.cases[:1])
    assert outcome.actions.tolist() == [[1, -1]] * 3


def test_environments_of_users_are_evaluated_on_goals_they_draw_but_not_on_those_they_ignore():
    task = replace(make_task("FetchReach-v4"), episode_length=4)
    outcomes = run_cases(Restless(task), task, task.cases[:2])
    assert outcomes[0].goal != outcomes[1].goal
    assert [len(outcome.actions) for outcome in outcomes] == [4, 4]
    with pytest.raises(EnvError, match="does not take the goal"):
        run_cases(Idle(task), task, [Case("mine", (1.0, 0.7, 0.5))])


def test_an_evaluation_leaves_result_trajectories_and_settings(run):
    folder = run_evaluation(run, settings(controller="actor", seeds=2), progress=False)
    assert folder == run / "evaluations" / "actor-td3-0"
    found, outcomes, task = result(folder), load_outcomes(folder), make_task("maze_umaze")
    assert (found["controller"], found["algo"], found["seed"], found["seeds"]) == ("actor", "td3", 0, [0, 1])
    assert [(entry["seed"], entry["case"]) for entry in found["cases"]] == [
        (seed, case.name) for seed in (0, 1) for case in task.cases
    ]
    for entry, outcome in zip(found["cases"], outcomes, strict=True):
        met = task.success(outcome.achieved_goals, torch.tensor(outcome.goal))
        assert entry["success"] == bool(met.any())
        assert entry["steps"] == (int(met.int().argmax()) if met.any() else None)
        assert entry["goal"] == list(outcome.goal)
    scores = np.array([[entry["success"]] for entry in found["cases"]])
    expected = mean_interval(scores, np.random.default_rng(seed_for(0, "interval")))
    assert found["success"] == expected.estimate == pytest.approx(scores.mean())
    assert found["interval"] == [expected.low, expected.high]
    assert json.loads((folder / "config.json").read_text())["settings"]["controller"] == "actor"


def test_plans_are_kept_where_there_is_a_map_to_draw_them_on(run):
    folder = run_evaluation(run, settings(cases="(1, 3)"), progress=False)
    (outcome,) = load_outcomes(folder)
    every, horizon = SMOKE.reach.planner.replan_every, make_task("maze_umaze").reach_horizon
    assert outcome.plan_steps.tolist() == list(range(0, len(outcome.actions), every))
    assert outcome.plans.shape[2:] == (horizon + 1, 2)
    starts = outcome.observations[outcome.plan_steps, :2]
    torch.testing.assert_close(outcome.plans[:, 0, 0], starts, rtol=0, atol=1e-5)


def test_the_same_call_after_the_end_changes_nothing_and_more_seeds_continue(run):
    once = run_evaluation(run, settings(), name="grown", progress=False)
    before = {path: path.read_bytes() for path in once.glob("*.*")}
    run_evaluation(run, settings(), name="grown", progress=False)
    assert {path: path.read_bytes() for path in once.glob("*.*")} == before
    grown = run_evaluation(run, settings(seeds=2), name="grown", progress=False)
    whole = run_evaluation(run, settings(seeds=2), name="whole", progress=False)
    assert result(grown) == result(whole)
    assert all(same(*pair) for pair in zip(load_outcomes(grown), load_outcomes(whole), strict=True))


def test_killed_in_the_middle_it_ends_with_the_same_result(run):
    parts = settings(together=1)
    whole = run_evaluation(run, parts, name="whole", progress=False)
    script = (
        "import sys; from curioplan.stages.evaluate import run_evaluation; "
        "from test_evaluate import settings; "
        "run_evaluation(sys.argv[1], settings(together=1), name='broken', progress=False)"
    )
    process = subprocess.Popen([sys.executable, "-c", script, run], cwd=Path(__file__).parent)
    broken = run / "evaluations" / "broken"
    while process.poll() is None and not list((broken / "checkpoints").glob("*.json")):
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert list((broken / "checkpoints").glob("*.json")), "it was killed after a batch"
    assert not (broken / "result.json").exists(), "and before the end"
    assert run_evaluation(run, parts, name="broken", progress=False) == broken
    assert result(broken) == result(whole)
    assert all(same(*pair) for pair in zip(load_outcomes(broken), load_outcomes(whole), strict=True))
    assert (broken / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()


def test_what_has_changed_since_an_evaluation_was_begun_is_refused(run, tmp_path):
    goals = tmp_path / "goals.json"
    goals.write_text("[[1, 3]]")
    mine = settings(controller="actor", cases=str(goals))
    folder = run_evaluation(run, mine, progress=False)
    assert folder.name == "actor-td3-0-goals"
    goals.write_text("[[3, 3]]")
    with pytest.raises(RunError, match=r"The goals of .* have changed"):
        run_evaluation(run, mine, progress=False)
    goals.write_text("[[1, 3]]")
    with pytest.raises(ConfigError, match="begun with other settings: together"):
        run_evaluation(run, replace(mine, together=1), progress=False)


def test_random_goals_are_those_the_data_achieve_and_the_same_for_every_controller(run):
    store = curioplan.load_data(run / "explore" / "data", make_task("maze_umaze"))
    achieved = {tuple(goal) for goal in store.achieved_goals.double().tolist()}
    chosen = []
    for controller in ("actor", "mbp+sparse"):
        reach = replace(SMOKE.reach, horizon=5)
        folder = evaluate(run, controller, cases="random:4", config=reach, progress=False)
        chosen.append([outcome.goal for outcome in load_outcomes(folder)])
    assert chosen[0] == chosen[1]
    assert len(set(chosen[0])) == 4
    assert set(chosen[0]) <= achieved


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"controller": "mbp+grpah"}, "no controller mbp\\+grpah"),
        ({"algo": "iql"}, "no values of iql"),
        ({"seed": 7}, "with seed 7"),
        ({"values": "best"}, "no values of best"),
        ({"model": "better"}, "no finished model better"),
        ({"cases": "(1, 2)"}, "no case '\\(1, 2\\)' in maze_umaze; did you mean"),
        ({"cases": "random:many"}, "as random:20"),
        ({"cases": "random:999999"}, "only 602 states"),
        ({"cases": "nowhere.json"}, "Cannot read nowhere.json"),
    ],
)
def test_what_is_not_there_is_refused_in_one_sentence_and_nothing_is_written(run, changes, message):
    with pytest.raises(curioplan.CurioplanError, match=message):
        run_evaluation(run, settings(**changes), progress=False)
    assert not (run / "evaluations").exists()


def test_the_command_prints_a_table_and_where_things_are(run, capsys):
    arguments = ["evaluate", str(run), "--preset", "smoke", "--controller", "actor", "--seeds", "2"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["case", "reached", "steps", "length", "Hz"]
    assert [line.split("  ")[0] for line in shown[1:4]] == ["(1, 3)", "(3, 3)", "(3, 1)"]
    assert "90% interval" in shown[4]
    assert shown[5].endswith(str(run / "evaluations" / "actor-td3-0"))
    assert main([*arguments, "--reach.planner.population", "2"]) == 2
    assert "reach.planner.population (16 there, 2 here)" in capsys.readouterr().err
    assert main(["evaluate", str(run / "nowhere")]) == 2
    assert "There is no run folder" in capsys.readouterr().err


def test_an_agent_of_a_run_acts_on_observations(run):
    agent = curioplan.Agent.load(run, "mbp+graph", config=preset("smoke", ReachConfig))
    env = curioplan.make_env("maze_umaze")
    observation, _ = env.reset(seed=0)
    agent.reset([3.0, 3.0])
    for _ in range(3):
        observation, *_ = env.step(agent.act(observation))
    assert np.isfinite(observation["observation"]).all()


@pytest.mark.parametrize("controller", ["mbp", "mbp+sparse"])
def test_evaluations_of_other_seeds_have_folders_of_their_own(controller):
    names = {default_name(EvaluateConfig(controller=controller, seed=seed)) for seed in range(3)}
    assert len(names) == 3
