"""Devices: the same code on each of them, and results that do not care where they came from.

Most tests compute on a second device in pure Python (see `second_device`), which refuses what a GPU refuses,
and compare bits with the CPU. Those over `AVAILABLE` compute on CUDA itself where there is one.
"""

import logging
import sys
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

import curioplan
from curioplan.cli import main
from curioplan.config import (
    DiagnoseConfig,
    EvaluateConfig,
    ExploreConfig,
    GraphConfig,
    ModelConfig,
    PlannerConfig,
    ReachConfig,
    TrainModelConfig,
)
from curioplan.data import Relabelling, TrajectoryStore, sample_batch
from curioplan.data.relabel import Batch, stack_batches
from curioplan.devices import find_device
from curioplan.envs import make_task
from curioplan.errors import ConfigError
from curioplan.graph import AggregatedValue, Graph, NextSubgoal, Wayfinder
from curioplan.models import GaussianEnsemble
from curioplan.planning import Disagreement, GoalValue, ModelRollout, Novelty, Planner
from curioplan.presets import preset
from curioplan.runs import open_stage
from curioplan.stages.diagnose import diagnose
from curioplan.stages.evaluate import run_evaluation
from curioplan.stages.polo import polo_config
from curioplan.storage import load_tree, read_json, save_tree, write_json
from curioplan.studies.jobs import Job, Plan
from curioplan.values import LEARNERS, Problem, Values, learner_class, save_values
from second_device import Generator, SecondDevice, set_up

AVAILABLE = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SMALL = ModelConfig(members=3, elites=2, layers=2, units=16, batch_size=16)
TASK = make_task("maze_umaze")
EXPLORE = replace(preset("smoke", ExploreConfig), steps=330, warmup_steps=300, horizon=8)
MODEL = replace(preset("smoke", TrainModelConfig), updates=20, model=SMALL)
PLANNER = PlannerConfig(population=8, elite_ratio=0.3, iterations=2, replan_every=15, propagation="mean")
REACH = replace(preset("smoke", ReachConfig), planner=PLANNER)
EVALUATE = replace(preset("smoke", EvaluateConfig), cases="random:2", reach=REACH)
EPISODES, EPISODE = 10, 24


@pytest.fixture
def second(monkeypatch):
    """A second device, which is where stages compute that are told ``cuda``."""
    device = set_up()
    if device is None:
        pytest.skip("this version of torch cannot have a device in pure Python")
    monkeypatch.setattr(torch, "Generator", Generator)
    for name, module in sorted(sys.modules.items()):
        if name.startswith("curioplan.") and hasattr(module, "find_device"):
            found = lambda name: device if name == "cuda" else find_device(name)  # noqa: E731
            monkeypatch.setattr(module, "find_device", found)
    with SecondDevice() as mode:
        mode.device = device
        yield mode


def recorded(device="cpu"):
    """Trajectories of a point that noise pushes about."""
    rng, store = np.random.default_rng(0), TrajectoryStore(4, 2, 2)
    for _ in range(EPISODES):
        states = np.cumsum(rng.normal(size=(EPISODE + 1, 4)), 0)
        store.add_episode(states, rng.uniform(-1, 1, (EPISODE, 2)), states[:, :2])
    return store.to(device)


def fitted(store, updates=3):
    """A model of them that has hardly learned."""
    model = GaussianEnsemble(4, 2, SMALL, seed=1, device=store.device)
    model.add(store.observations, store.actions, store.transition_rows)
    model.update(store.observations, store.actions, updates)
    model.select_elites(store.observations, store.actions)
    return model


def learner(algo, store, seeds=(0, 1), **settings):
    kind = learner_class(algo)
    if issubclass(kind, learner_class("td3")):
        settings |= {"next_action": "better", "lookahead": 3}
    if issubclass(kind, learner_class("mbpo")):
        settings |= {"rollouts": 20, "rollout_every": 2, "buffer_size": 200}
    config = kind.Config(units=16, batch_size=16, quick_units=8, p_state=0.5, hindsight=True, **settings)
    model = fitted(store) if kind.needs_model else None
    return kind(Problem.of(TASK, store, whole=True), config, list(seeds), model)


def batch(store, problem, count, number):
    """Batches of as many learners as there are to be, of goals of both kinds."""
    found = []
    for seed in range(count):
        generator = torch.Generator().manual_seed(100 * number + seed)
        one = sample_batch(store, 16, Relabelling(p_near=0.5), generator, lookahead=3, p_whole=0.5)
        one.goals = problem.goals_of(one.goals, store.observations[one.goal_rows], one.whole)
        found.append(one)
    return stack_batches(found)


def train(learner, store, updates=4, first=0):
    for number in range(first, first + updates):
        some: Batch = batch(store, learner.problem, len(learner.seeds), number)
        learner.update(some)
        learner.distil(some)


def same(here, there):
    """Whether trees of tensors, numbers and text are equal, wherever the tensors are."""
    if isinstance(here, torch.Tensor):
        return torch.equal(here.cpu(), there.cpu())
    if isinstance(here, dict):
        return here.keys() == there.keys() and all(same(here[key], there[key]) for key in here)
    if isinstance(here, list | tuple):
        return all(same(one, other) for one, other in zip(here, there, strict=True))
    return here == there


# The parts, on both devices


def test_the_second_device_refuses_what_a_gpu_refuses(second):
    there, here = torch.ones(3, device=second.device), torch.ones(3)
    refused = [
        lambda: there + here,
        lambda: here[there.long()],
        lambda: there.index_select(0, torch.tensor([1])),
        lambda: there.numpy(),
        lambda: there.normal_(generator=torch.Generator()),
        lambda: here.normal_(generator=torch.Generator(second.device)),
    ]
    for attempt in refused:
        with pytest.raises(RuntimeError, match=r"device|numpy"):
            attempt()
    assert (there[torch.tensor([0, 2])] + torch.tensor(1.0)).tolist() == [2, 2]


def test_models_train_alike_on_every_device(second):
    here, there = recorded(), recorded(second.device)
    models = [fitted(store) for store in (here, there)]
    for model, store in zip(models, (here, there), strict=True):
        model.fit(store.observations, store.actions, 1)
    assert models[1].device.type == models[1].network.weights[0].device.type == second.device.type
    assert same(models[0].state(), models[1].state())
    for ask in ("predict", "disagreement"):
        answers = [
            getattr(model, ask)(store.observations, store.actions)
            for model, store in zip(models, (here, there), strict=True)
        ]
        assert same(*answers)


def planned(store, objective, propagation, method="icem", replan_every=1):
    """Three actions of two episodes, of which one begins later."""
    config = PlannerConfig(method=method, population=12, elite_ratio=0.3, iterations=2, particles=4)
    config = replace(config, propagation=propagation, replan_every=replan_every)
    bounds = (torch.full((2,), bound, device=store.device) for bound in (-1.0, 1.0))
    rollout = ModelRollout(fitted(store), propagation, 4)
    planner = Planner(config, 5, *bounds, rollout, objective)
    planner.reset([7, 8])
    actions = [planner.act(torch.zeros(1, 4), [0])]
    actions += [planner.act(torch.full((2, 4), 0.1)) for _ in range(2)]
    return [*actions, planner.report.elite_values, planner.report.elite_states]


@pytest.mark.parametrize("method", ["icem", "cem", "mppi"])
@pytest.mark.parametrize("propagation", ["ts1", "mean", "shared"])
def test_plans_out_of_curiosity_are_alike_on_every_device(second, propagation, method):
    stores = recorded(), recorded(second.device)
    assert same(*(planned(store, Disagreement(), propagation, method) for store in stores))


def test_a_plan_is_fetched_once_and_nothing_else(second):
    store = recorded(second.device)
    model = fitted(store)
    bounds = (torch.full((2,), bound, device=second.device) for bound in (-1.0, 1.0))
    planner = Planner(PlannerConfig(population=12), 5, *bounds, ModelRollout(model), Disagreement())
    planner.reset([0])
    before = second.counts["fetched"]
    planner.act(torch.zeros(1, 4))
    planner.act(torch.zeros(1, 4))
    assert second.counts["fetched"] - before == 2


def test_novelty_is_alike_on_every_device(second):
    found = []
    for store in (recorded(), recorded(second.device)):
        novelty = Novelty(4, units=16, outputs=4, seed=3, device=store.device)
        novelty.add(store.observations)
        losses = [novelty.update(store.observations) for _ in range(3)]
        found.append([losses, novelty.state(), planned(store, novelty, "mean")])
    assert same(*found)


@pytest.mark.parametrize("algo", [*LEARNERS, "polo"])
def test_learners_learn_alike_on_every_device(second, algo):
    found = []
    for store in (recorded(), recorded(second.device)):
        several, asked = learner(algo, store), (store.observations[:9], store.achieved_goals[1:10])
        train(several, store)
        found.append([several.state(), several.value(*asked), several.distance(*asked)])
        if algo != "polo":
            found[-1].append(several.act(*asked))
    assert found[1][1].device.type == second.device.type
    assert same(*found)


@pytest.mark.parametrize("algo", [*LEARNERS, "polo"])
@pytest.mark.parametrize("back", [True, False])
def test_training_goes_on_elsewhere_from_a_checkpoint(second, algo, back, tmp_path):
    stores = recorded(), recorded(second.device)
    begun, other = stores[::-1] if back else stores
    kept, resumed = learner(algo, begun), learner(algo, other)
    train(kept, begun)
    save_tree(tmp_path / "state.safetensors", kept.state())
    resumed.load(load_tree(tmp_path / "state.safetensors"))
    train(kept, begun, first=4)
    train(resumed, other, first=4)
    assert same(kept.state(), resumed.state())


@pytest.mark.parametrize("evaluate", ["exact", "quick", "checked"])
def test_files_of_values_are_the_same_and_aggregate_alike_on_every_device(second, evaluate, tmp_path):
    found, files = [], []
    config = GraphConfig(vertices=12, candidates=100, density_goals=20, through="states", evaluate=evaluate)
    for store in (recorded(), recorded(second.device)):
        trained = learner("td3", store, device="cuda" if files else "cpu")
        train(trained, store)
        files.append(tmp_path / f"{len(files)}.safetensors")
        save_values(files[-1], trained, 1)
    for store in (recorded(), recorded(second.device)):
        values = Values.load(files[0], store.device)
        edges = values.for_graph(evaluate)
        graph = Graph.build(edges, store, config, 12, seed=0)
        finder = Wayfinder(edges, graph, store.achieved_goals[[5, 90]], arrival=1.0)
        objectives = [
            GoalValue(values.value, store.achieved_goals[[5, 90]]),
            AggregatedValue(finder, 5, "promising", "mean"),
            NextSubgoal(finder, 10.0),
        ]
        found.append([graph.state(), *(planned(store, objective, "mean") for objective in objectives)])
    assert files[0].read_bytes() == files[1].read_bytes()
    assert same(*found)


# The stages


def run(out, device):
    """Everything from exploration to diagnosis on a device."""
    curioplan.explore("maze_umaze", out, replace(EXPLORE, device=device), progress=False)
    curioplan.save_data(recorded(), out / "recorded", task=TASK)
    model = replace(MODEL, data=str(out / "recorded"), device=device)
    curioplan.train_model(out, model, progress=False)
    settings = {"updates": 30, "units": 16, "batch_size": 32, "device": device}
    curioplan.train(out, "td3", replace(curioplan.learner_config("td3", "smoke"), **settings), progress=False)
    for controller in ("actor", "mbp", "mbp+graph", "mbp+sparse", "mbp+sorb-10"):
        run_evaluation(out, replace(EVALUATE, controller=controller, device=device), progress=False)
    diagnose(out, replace(preset("smoke", DiagnoseConfig), evaluations="mbp-td3-0-random-2", device=device))
    return out


@pytest.fixture(scope="module")
def run_on_cpu(tmp_path_factory):
    return run(tmp_path_factory.mktemp("cpu") / "run", "cpu")


def left(out):
    """What a run leaves that does not tell the time."""
    diagnosis = read_json(out / "diagnosis/td3-0/diagnosis.json")
    del diagnosis["settings"]["device"]
    trajectories = {
        path.parent.name: [
            {key: value for key, value in episode.items() if key != "record"}
            for episode in load_tree(path)["episodes"]
        ]
        for path in sorted(out.glob("evaluations/*/trajectories.safetensors"))
    }
    names = ["explore/data/main_data.hdf5", "explore/model.safetensors", "models/offline/model.safetensors"]
    names += ["models/offline/errors.json", "values/td3-0/seed-0.safetensors", "values/td3-0/values.json"]
    files = {name: (out / name).read_bytes() for name in names}
    return {"files": files, "trajectories": trajectories, "diagnosis": diagnosis}


def test_all_stages_leave_the_same_on_every_device(run_on_cpu, second, tmp_path):
    """As far as a device in pure Python can tell: a GPU sums in another order, so its bits differ."""
    here, there = left(run_on_cpu), left(run(tmp_path / "there", "cuda"))
    assert second.counts["there"] > 10_000
    assert [name for name in here["files"] if here["files"][name] != there["files"][name]] == []
    assert same(here["trajectories"], there["trajectories"])
    assert same(here["diagnosis"], there["diagnosis"])
    agent = curioplan.Agent.load(tmp_path / "there", device="cuda")
    agent.reset([1.0, 1.0])
    assert agent.act(np.zeros(4)).dtype == np.float32
    assert agent.graph.vertices.shape[1] == 4


@pytest.mark.parametrize("explorer", ["novelty", "foresight", "on-policy", "mppi"])
def test_other_explorations_leave_the_same_on_every_device(second, explorer, tmp_path):
    results = []
    for device in ("cpu", "cuda"):
        out = tmp_path / device
        setting = {"novelty": {"explorer": "novelty"}, "foresight": {"foresight": 0.9}}.get(explorer)
        if setting:
            curioplan.explore("maze_umaze", out, replace(EXPLORE, **setting, device=device), progress=False)
        else:
            shared = {entry.name: getattr(EXPLORE, entry.name) for entry in fields(EXPLORE) if entry.init}
            del shared["explorer"]
            config = replace(polo_config("smoke"), **shared, targets=explorer, target_horizon=4)
            curioplan.polo("maze_umaze", out, replace(config, device=device), progress=False)
        names = ["explore/data/main_data.hdf5", "explore/model.safetensors"]
        names += ["values/polo-0/seed-0.safetensors"] if not setting else []
        results.append([(out / name).read_bytes() for name in names])
    assert results[0] == results[1]


def test_an_exploration_goes_on_elsewhere(second, tmp_path):
    results = []
    for device in ("cpu", "cuda"):
        out = tmp_path / device
        curioplan.explore("maze_umaze", out, replace(EXPLORE, steps=310, device=device), progress=False)
        curioplan.explore("maze_umaze", out, EXPLORE, progress=False)
        results.append((out / "explore" / "model.safetensors").read_bytes())
    assert results[0] == results[1]


@pytest.mark.parametrize("device", AVAILABLE)
def test_what_was_made_on_a_device_is_of_use_on_the_cpu(device, run_on_cpu, tmp_path):
    """On CUDA itself where there is one: from exploration to diagnosis, and agents there and on the CPU."""
    out = run_on_cpu if device == "cpu" else run(tmp_path / "run", device)
    assert len(left(out)["trajectories"]) == 5
    for place in dict.fromkeys([device, "cpu"]):
        agent = curioplan.Agent.load(out, config=REACH, device=place)
        agent.reset([1.0, 1.0])
        assert np.isfinite(agent.act(np.zeros(4))).all()


# The setting


def test_every_stage_that_computes_has_a_device():
    stages = [ExploreConfig, TrainModelConfig, EvaluateConfig, DiagnoseConfig]
    stages += [learner_class(algo).Config for algo in LEARNERS] + [type(polo_config())]
    assert {stage().device for stage in stages} == {"cpu"}


@pytest.mark.parametrize("name", ["tpu", "", "CUDA", "cuda:-1", "cuda:", "mps", "cpu:0"])
def test_what_is_no_device_is_refused(name):
    with pytest.raises(ConfigError, match=r"device must be cpu, cuda, one of several as cuda:1, or auto"):
        ExploreConfig(device=name)


def test_auto_is_cuda_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device("auto") == find_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert find_device("auto") == find_device("cuda") == torch.device("cuda:0")
    assert find_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ConfigError, match=r"no device cuda:2 here.* there is cpu, cuda:0, cuda:1\.$"):
        find_device("cuda:2")


@pytest.mark.parametrize(
    "words",
    [
        ["run", "maze_umaze", "--out"],
        ["explore", "maze_umaze", "--out"],
        ["polo", "maze_umaze", "--out"],
        ["train", "--env", "maze_umaze", "--data", "own"],
        ["train-model", "--env", "maze_umaze", "--data", "own"],
        ["evaluate"],
        ["diagnose"],
        ["play", "--no-open"],
    ],
    ids=lambda words: words[0],
)
def test_a_device_that_is_not_there_costs_one_sentence_and_writes_nothing(
    words, trained_run, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    new = words[-1] in ("--out", "own")
    out = tmp_path / "new" if new else trained_run
    place = [*words, str(out)] if words[-1] == "--out" else [words[0], str(out), *words[1:]]
    before = sorted(trained_run.rglob("*"))
    assert main([*place, "--device", "cuda:1", "--preset", "smoke"]) == 2
    said = capsys.readouterr().err.strip()
    assert said.endswith("There is no device cuda:1 here, or torch cannot use it; there is cpu.")
    assert len(said.splitlines()) == 1
    assert sorted(trained_run.rglob("*")) == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("known", [True, False], ids=["other device", "older version"])
def test_a_stage_continues_whatever_its_device_was(known, tmp_path, caplog):
    config = replace(EXPLORE, device="cuda")
    with open_stage(tmp_path, "explore", "maze_umaze", config):
        pass
    path = tmp_path / "explore" / "config.json"
    if not known:
        saved = read_json(path)
        del saved["settings"]["device"]
        write_json(path, saved)
    with caplog.at_level(logging.WARNING), open_stage(tmp_path, "explore", "maze_umaze", EXPLORE):
        pass
    assert [record.getMessage() for record in caplog.records] == (
        ["The run continues with device cpu, not cuda, so its bits may differ."] if known else []
    )


def test_a_job_has_finished_wherever_it_was_computed():
    def of(**changed):
        given = {"$settings": "explore", "preset": "smoke", "changed": changed}
        return Plan([Job("explore/0", "curioplan:explore", {"config": given})]).fingerprints

    assert of(steps=3) == of(steps=3, device="cuda") != of(steps=4, device="cuda")
