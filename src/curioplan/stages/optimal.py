"""What is known exactly in mazes: expert trajectories, true times, and values over a graph along them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from curioplan.analysis.geodesic import MazeTimes
from curioplan.analysis.values import ValueFunction
from curioplan.config import GraphConfig
from curioplan.envs import Case, Task, make_env
from curioplan.envs.maze import SUCCESS_RADIUS
from curioplan.envs.task import Floats
from curioplan.envs.waypoints import WaypointController
from curioplan.errors import EnvError
from curioplan.graph import AggregatedValue, GraphView, Wayfinder, view
from curioplan.stages.control import Parts
from curioplan.stages.episodes import begin_case
from curioplan.values import Values

ARRIVED = 0.1  # distance from the goal at which an expert trajectory ends


@dataclass(frozen=True)
class ExpertPath:
    """The trajectory of a waypoint controller to the goal of a case.

    Attributes:
        case: The case.
        states: ``(steps + 1, observation)``.
        steps: The least number of steps from each to within the radius of the goal.
    """

    case: Case
    states: Tensor
    steps: Floats


def expert_paths(task: Task, seed: int = 0, radius: float = SUCCESS_RADIUS) -> list[ExpertPath]:
    """Trajectories to the goals of a maze's cases; none where there is no maze, or the expert gets lost.

    Args:
        task: The task.
        seed: Of where the episodes start.
        radius: The distance from a goal up to which the steps count; 0 asks for its very position.
    """
    try:
        times = MazeTimes(task, radius)
    except EnvError:
        return []
    assert task.floor_plan is not None
    expert, found = WaypointController(task.floor_plan.free), []
    with closing(make_env(task.env)) as env:
        for case in (case for case in task.cases if case.goal is not None):
            goal: Floats = np.array(case.goal, np.float64)
            path = [begin_case(env, case, seed)["observation"]]
            while len(path) <= task.episode_length and np.linalg.norm(path[-1][:2] - goal) > ARRIVED:
                path.append(env.step(expert.act(path[-1], goal))[0]["observation"])
            states = np.stack(path)
            if np.linalg.norm(states[-1, :2] - goal) <= ARRIVED:
                steps = times.steps(states, np.broadcast_to(goal, (len(states), 2)))
                found.append(ExpertPath(case, torch.from_numpy(states).float(), steps))
    return found


class OverGraph:
    """A value function aggregated over its graph, for one goal.

    Args:
        parts: Where values and data are.
        values: The value function.
        config: The graph.
        goal: The goal.
    """

    def __init__(self, parts: Parts, values: Values, config: GraphConfig, goal: tuple[float, ...]) -> None:
        edges = values.for_graph(config.evaluate)
        graph = parts.graph(edges, config)
        self.gamma, self.detour = values.gamma, graph.detour
        self._arrival = config.arrival / graph.detour
        goals = torch.tensor([goal], dtype=torch.float32)
        self._finder = Wayfinder(edges, graph, goals, config.arrival, config.trust)
        self._value = AggregatedValue(self._finder)

    def seen_from(self, state: Tensor) -> ValueFunction:
        """V̄ as a function of states, with edges trusted as from a state (observation,).

        Values count from the step before the goal, as V̂ does: where one edge leads there and there are no
        detours, V̄ = V̂.
        """

        def value(states: Tensor, goals: Tensor) -> Tensor:
            return self.gamma ** (self._value.distance(0, state, states, 0) - self._arrival).clamp(min=0)

        return value

    def along(self, states: Tensor) -> Floats:
        """V̄ of each of the states (N, observation), seen from itself."""
        found = [self.seen_from(state)(state[None], state[None]) for state in states]
        return torch.cat(found).double().cpu().numpy()

    def view(self, state: Tensor) -> GraphView:
        """The graph as it is seen from a state (observation,)."""
        return view(self._finder, 0, state)
