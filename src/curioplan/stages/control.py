"""Reaching goals: controllers by name, and an agent that uses one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from curioplan.config import GraphConfig, ReachConfig
from curioplan.data import TrajectoryStore, gather
from curioplan.devices import find_device
from curioplan.envs import Task, make_task
from curioplan.errors import ConfigError, CurioplanError, RunError
from curioplan.graph import AggregatedValue, Graph, GraphView, NextSubgoal, Wayfinder, view
from curioplan.models import GaussianEnsemble
from curioplan.planning import GoalValue, ModelRollout, Objective, Planner, Sparse
from curioplan.presets import preset
from curioplan.runs import read_run
from curioplan.seeding import seed_for
from curioplan.stages.train import find_values
from curioplan.stages.train_model import load_model
from curioplan.storage import load_tree, read_json, save_tree
from curioplan.values import Distances, Values

SORB_STEPS = (5, 10, 50, 100)
CONTROLLERS = (
    "actor",
    "mbp",
    "mbp+graph",
    "mbp+graph-uniform",
    "mbp+sparse",
    *(f"mbp+sorb-{steps}" for steps in SORB_STEPS),
)
"""Names of controllers; SORB's number is the longest edge it trusts, in steps: V_min = γ^steps."""


class Controller(Protocol):
    """What acts for several episodes at once, each with a goal of its own.

    States, goals and actions pass to and fro on the CPU, wherever it computes.
    """

    def reset(self, goals: Tensor, seeds: Sequence[int]) -> None:
        """Begin episodes: their goals (episodes, goal) and the seeds of all that is random in them."""
        ...

    def act(self, states: Tensor, slots: Sequence[int] | None = None) -> Tensor:
        """The actions (B, action) of episodes that are in these states (B, observation); by default all."""
        ...


class ActorController:
    """Follows the policy π(s; g)."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.goals = torch.empty(0, 0)

    def reset(self, goals: Tensor, seeds: Sequence[int]) -> None:
        """See `Controller`."""
        self.goals = goals

    def act(self, states: Tensor, slots: Sequence[int] | None = None) -> Tensor:
        """See `Controller`."""
        return self.values.act(states, self.goals if slots is None else self.goals[list(slots)]).cpu()


class PlanningController:
    """Plans with a model towards what an objective is worth.

    Args:
        task: The task.
        model: The dynamics model.
        config: Settings.
        objective: Makes the objective for the goals of all episodes.
    """

    def __init__(
        self,
        task: Task,
        model: GaussianEnsemble,
        config: ReachConfig,
        objective: Callable[[Tensor], Objective],
    ) -> None:
        self._objective, device = objective, model.device
        low, high = (torch.tensor(bound, device=device) for bound in (task.action_low, task.action_high))
        planner = config.planner
        rollout = ModelRollout(model, planner.propagation, planner.particles)
        unset = objective(torch.zeros(1, task.goal_dim, device=device))
        self.planner = Planner(planner, config.horizon or task.reach_horizon, low, high, rollout, unset)

    def reset(self, goals: Tensor, seeds: Sequence[int]) -> None:
        """See `Controller`."""
        self.planner.objective = self._objective(goals.to(self.planner.device))
        self.planner.reset(seeds)

    def act(self, states: Tensor, slots: Sequence[int] | None = None) -> Tensor:
        """See `Controller`."""
        return self.planner.act(states, slots)


_OF_PLANS = ("near_vertices", "preselect")
"""Settings of a graph that matter only once it is planned with."""


@dataclass(frozen=True)
class Parts:
    """What a controller is made of, loaded as far as it is needed."""

    run: Path
    task: Task
    config: ReachConfig
    algo: str = "td3"
    seed: int = 0
    values_name: str = ""
    model_name: str = ""
    device: str = "cpu"

    def values(self) -> Values:
        """The value function."""
        return Values.load(self.values_path(), find_device(self.device))

    def values_path(self) -> Path:
        """Where the value function lies."""
        return find_values(self.run, self.algo, self.seed, self.values_name)

    def model(self) -> GaussianEnsemble:
        """The dynamics model."""
        return load_model(self.run, self.model_name, device=self.device)

    def data(self) -> TrajectoryStore:
        """The trajectories that the value function was learned from."""
        settings = self.data_settings()
        own = self.run / "explore" / "data"
        return gather(settings["data"], own, self.task, size=settings["size"], seed=settings["seed"])

    def data_settings(self) -> dict[str, Any]:
        """The settings of the value function's training, of which some say where its data came from."""
        return _training_settings(self.values_path().parent)

    def graph(self, values: Distances, config: GraphConfig) -> Graph:
        """The graph of a value function, kept beside it once it was made."""
        path, device = self.values_path(), find_device(self.device)
        kept = path.parent / "graphs" / f"{path.stem}-{self._graph_key(path, config)}.safetensors"
        if kept.is_file():
            return Graph.from_state(load_tree(kept), device)
        seed = seed_for(self.config.seed, "graph")
        graph = Graph.build(values, self.data().to(device), config, self.task.graph_vertices, seed)
        kept.parent.mkdir(exist_ok=True)
        save_tree(kept, graph.state())
        return graph

    def _graph_key(self, path: Path, config: GraphConfig) -> str:
        """What identifies a graph: the value function and all settings that change the graph."""
        settings = {key: value for key, value in asdict(config).items() if key not in _OF_PLANS}
        settings |= {"seed": self.config.seed, "task_vertices": self.task.graph_vertices}
        digest = hashlib.sha256(path.read_bytes())
        digest.update(json.dumps(settings, sort_keys=True).encode())
        return digest.hexdigest()[:16]


def make_controller(name: str, parts: Parts) -> Controller:
    """The controller of a name.

    Raises:
        ConfigError: There is none, or it cannot work in this task.
    """
    config, task = parts.config, parts.task
    if name == "actor":
        return ActorController(parts.values())
    if name == "mbp+sparse":
        task.goal_of(torch.zeros(1, task.observation_dim))  # refuses where goals cannot be imagined
        return PlanningController(
            task, parts.model(), config, lambda goals: Sparse(task.success, task.goal_of, goals)
        )
    sorb = re.fullmatch(r"mbp\+sorb-(\d+)", name)
    if name not in CONTROLLERS and not sorb:
        raise ConfigError(f"There is no controller {name}; there are {', '.join(CONTROLLERS)}.")
    values = parts.values()
    if name == "mbp":
        return PlanningController(
            task, parts.model(), config, lambda goals: GoalValue(values.value, goals, config.valuing)
        )
    uniform = sorb or name == "mbp+graph-uniform"
    graph_config = replace(config.graph, sampling="uniform") if uniform else config.graph
    edges = values.for_graph(graph_config.evaluate)
    graph = parts.graph(edges, graph_config)

    def objective(goals: Tensor) -> Objective:
        wayfinder = Wayfinder(edges, graph, goals, graph_config.arrival, graph_config.trust)
        if sorb:
            return NextSubgoal(wayfinder, float(sorb[1]), config.valuing)
        return AggregatedValue(wayfinder, config.graph.near_vertices, config.graph.preselect, config.valuing)

    return PlanningController(task, parts.model(), config, objective)


class Agent:
    """Reaches goals in one environment: give it a goal, then an action for every observation.

    Attributes:
        task: The task.
        controller: What acts.
    """

    def __init__(self, task: Task, controller: Controller) -> None:
        self.task, self.controller = task, controller
        self._goal: Tensor | None = None
        self._state: Tensor | None = None

    @classmethod
    def load(
        cls,
        run: str | Path,
        controller: str = "mbp+graph",
        *,
        algo: str = "td3",
        seed: int = 0,
        values: str = "",
        model: str = "",
        config: ReachConfig | None = None,
        device: str = "cpu",
    ) -> Agent:
        """The agent of a trained run.

        Args:
            run: The run folder.
            controller: One of `CONTROLLERS`.
            algo: The learner of the value function.
            seed: Its seed.
            values: The name of its training, if it was given one.
            model: The name of the dynamics model; by default exploration's.
            config: Settings; by default those of preset ``cpu`` for the environment.
            device: Where to compute: ``cpu``, ``cuda``, one of several as ``cuda:1``, or ``auto``, which is
                CUDA where there is one.
        """
        find_device(device)
        env = str(read_run(Path(run))["env"])
        task, config = make_task(env), config or preset("cpu", ReachConfig, env)
        parts = Parts(Path(run), task, config, algo, seed, values, model, device)
        return cls(task, make_controller(controller, parts))

    def reset(self, goal: ArrayLike, seed: int = 0) -> None:
        """Begin an episode: what is to be achieved, and the seed of the planner's noise."""
        self._goal, self._state = _vector(goal, self.task.goal_dim, "goal"), None
        self.controller.reset(self._goal[None], [seed])

    def act(self, observation: ArrayLike | Mapping[str, ArrayLike]) -> NDArray[np.float32]:
        """The next action, for an observation of the environment or its part ``observation``."""
        if self._goal is None:
            raise CurioplanError("The agent has no goal yet: call reset(goal) first.")
        seen = observation["observation"] if isinstance(observation, Mapping) else observation
        self._state = state = _vector(seen, self.task.observation_dim, "observation")
        action = self.controller.act(state[None])[0].numpy()
        return np.clip(action, self.task.action_low, self.task.action_high).astype(np.float32)

    @property
    def graph(self) -> GraphView:
        """The graph as it is seen from the last observation, with the path to the goal."""
        if not isinstance(self.controller, PlanningController) or self._state is None:
            raise CurioplanError("There is a graph to look at once a controller that uses one has acted.")
        objective = self.controller.planner.objective
        if isinstance(objective, AggregatedValue):
            return view(objective.wayfinder, 0, self._state)
        if isinstance(objective, NextSubgoal):
            return view(objective.wayfinder, 0, self._state, objective.limit)
        raise CurioplanError("This controller plans without a graph; choose mbp+graph.")


def _vector(value: Any, size: int, what: str) -> Tensor:
    try:
        array = np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError):
        raise CurioplanError(f"The {what} must be a vector of {size} numbers.") from None
    if array.shape != (size,) or not np.isfinite(array).all():
        raise CurioplanError(f"The {what} must hold {size} finite numbers; it has shape {array.shape}.")
    return torch.from_numpy(array.copy())


def _training_settings(folder: Path) -> dict[str, Any]:
    """The settings a value function was trained with."""
    saved = read_json(folder / "config.json")
    if not isinstance(saved, dict) or not isinstance(saved.get("settings"), dict):
        raise RunError(f"{folder / 'config.json'} is damaged: it does not hold settings.")
    settings: dict[str, Any] = saved["settings"]
    return settings
