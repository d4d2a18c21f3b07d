"""The world behind one page: an environment, an agent in it, and a clock that the page winds."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from curioplan.analysis.values import ValueFunction
from curioplan.envs import Case, make_env
from curioplan.envs.task import Observation
from curioplan.errors import ConfigError, CurioplanError, EnvError, RunError
from curioplan.graph import AggregatedValue, view
from curioplan.options import nearest
from curioplan.planning import PlanReport
from curioplan.stages.control import Agent, PlanningController, make_controller
from curioplan.stages.episodes import SHOWN_ELITES, begin_case
from curioplan.web.messages import PACES, Message, read_message
from curioplan.web.pictures import aggregated, describe_graph, describe_map, jpeg, landscape, rounded
from curioplan.web.playground import Playground

log = logging.getLogger(__name__)

PUSH_STEPS = 10  # a push lasts as long
UNSETTLED = 25  # steps after a push in which the goal does not count as reached
REMEMBERED = 20  # actions over which the rate of the controller is averaged
GRAPH_EVERY = 10  # steps between pictures of the graph
FRAME_SECONDS = 0.1  # at least, between rendered frames


class Session:
    """The world of one page. Messages come in as text and go out as JSON objects, or frames as bytes.

    No message makes it fail: what cannot be done is answered with an error that says why. Environments that
    draw with OpenGL need all calls to come from one thread.

    Args:
        playground: What all sessions share.
        seed: Of everything random.
    """

    def __init__(self, playground: Playground, seed: int = 0) -> None:
        self.parts, self.task, self.seed = playground.parts, playground.parts.task, seed
        self.plan, self.names = self.task.floor_plan, playground.controllers
        self.env = make_env(self.task.env, render_mode=None if self.plan is not None else "rgb_array")
        self.controller, self.pace = self.names[0], 50 if self.plan is not None else 10
        self.landscape, self.graph, self.plans = "none", False, True
        self.paused, self.phase, self.steps = False, "idle", 0
        self.goal: tuple[float, ...] | None = None
        self._values = self.parts.values()
        self._agents: dict[str, Agent] = {}
        self._told: dict[str, tuple[float, ...]] = {}  # their goals
        self._start = replace(self.task.cases[0], goal=None) if self.task.cases else Case("")
        self._episodes = self._answered = 0
        self._pushes: deque[NDArray[np.float32]] = deque()
        self._unsettled, self._ended = 0, False
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)
        self._drawn: dict[str, Any] = {}
        self._renders, self._framed = self.plan is None, 0.0
        self._seen: Observation = {}
        self._begin(self._start)

    @property
    def running(self) -> bool:
        """Whether time passes: the agent is under way or being pushed, and nobody stopped the clock."""
        return (self.phase == "going" or bool(self._pushes)) and not self.paused

    def hello(self) -> list[Message | bytes]:
        """What a page needs to know first."""
        cases = [case for case in self.task.cases if case.goal is not None]
        welcome = {
            "type": "hello",
            "task": self.task.name,
            "map": None if self.plan is None else describe_map(self.task, self.plan),
            "goal_dim": self.task.goal_dim,
            "cases": [{"name": case.name, "goal": list(case.goal or ())} for case in cases],
            "controllers": list(self.names),
            "paces": list(PACES),
        }
        return [welcome, *self._guarded(lambda: None)]

    def handle(self, text: str | bytes) -> list[Message | bytes]:
        """Do what a message asks for, and say how things are then."""

        def obey() -> None:
            self._answered += 1
            kind, fields = read_message(text)
            getattr(self, f"_do_{kind}")(**fields)

        return self._guarded(obey)

    def advance(self) -> list[Message | bytes]:
        """Let a step of time pass, if time passes."""
        return self._guarded(self._step) if self.running else []

    def close(self) -> None:
        """Free the environment."""
        self.env.close()

    def _guarded(self, work: Callable[[], None]) -> list[Message | bytes]:
        """What there is to say after some work, in particular what went wrong."""
        said: list[Message | bytes] = []
        for part in (work, lambda: said.extend(self._report())):  # which keeps what precedes an error
            try:
                with torch.no_grad():
                    part()
            except CurioplanError as error:
                self.paused |= work == self._step
                said.append({"type": "error", "text": str(error)})
            except Exception as error:  # of an environment that is not ours, say
                log.exception("The playground stumbled.")
                self.paused = True
                said.append({"type": "error", "text": f"Something went wrong: {error!s:.200}"})
        return said

    # What messages ask for.

    def _do_goal(self, goal: tuple[float, ...]) -> None:
        if len(goal) != self.task.goal_dim:
            raise EnvError(f"A goal of {self.task.name} has {self.task.goal_dim} numbers, not {len(goal)}.")
        if self.plan is None:
            self._begin(replace(self._start, name="typed", goal=goal))
        else:
            if self.task.goal_indices == (0, 1) and not self._is_free(goal):
                raise EnvError("There is a wall; choose a goal on the floor.")
            self.goal = goal
            self._go(afresh=True)

    def _do_case(self, name: str) -> None:
        known = {case.name: case for case in self.task.cases}
        if name not in known:
            raise ConfigError(f"There is no case {name!r}{nearest(name, list(known))}")
        if self.plan is not None and (goal := known[name].goal) is not None:
            self._do_goal(tuple(map(float, goal)))
        else:
            self._begin(known[name])

    def _do_click(self, at: tuple[float, ...]) -> None:
        """A place as the goal, or, where zones are to be visited in order, as the next zone of it."""
        if self.plan is None:
            raise EnvError(f"{self.task.name} has no map to click on.")
        if self.task.goal_indices == (0, 1):
            self._do_goal(at)
            return
        names = list(self.plan.zones)
        inside = [
            number
            for number, (x_low, y_low, x_high, y_high) in enumerate(self.plan.zones.values())
            if x_low <= at[0] <= x_high and y_low <= at[1] <= y_high
        ]
        if not inside:
            raise EnvError(f"Click on one of the zones {', '.join(names)} to make it the last of the goal.")
        before = self.goal or tuple(np.round(self._seen["achieved_goal"]).tolist())
        chosen = float(names[inside[0]])
        if before[-1] != chosen:
            self._do_goal((*before[1:], chosen))

    def _do_push(self, by: tuple[float, ...]) -> None:
        """Act against the agent's will for some steps, with the first two dimensions of the action."""
        low, high = np.array(self.task.action_low), np.array(self.task.action_high)
        action = (low + high) / 2
        size = min(2, len(action))
        action[:size] += np.clip(by[:size], -1, 1) * (high - low)[:size] / 2
        self._require_time()
        if self.goal is not None:
            self._go(afresh=self.phase == "idle")
        self._pushes = deque([action.astype(np.float32)] * PUSH_STEPS)
        self._unsettled = PUSH_STEPS + UNSETTLED

    def _do_move(self, to: tuple[float, ...]) -> None:
        """Put the agent elsewhere on the map, all else being as it was."""
        if self.plan is None or not self._is_free(to):
            raise EnvError("The agent can be put on free floor only.")
        state = self._seen["observation"].copy()
        state[:2] = to
        seen, _ = self.env.reset(options={"state": state, "goal": self._seen["desired_goal"]})
        self._renew()
        self._see(seen)
        if self.goal is not None:
            self._go(afresh=True)

    def _do_controller(self, name: str) -> None:
        if name not in self.names:
            raise ConfigError(f"There is no controller {name!r}{nearest(name, self.names)}")
        self._agent(name)  # may refuse
        self.controller = name
        self._seconds.clear()
        if self.goal is not None and self.phase == "idle":  # another controller could not go there
            self._go(afresh=True)
        elif self.goal is not None:
            self._instruct(name)

    def _do_show(self, landscape: str, graph: bool, plans: bool) -> None:
        if self.plan is None and (landscape != "none" or graph):
            raise EnvError(f"{self.task.name} has no map to draw on.")
        if landscape == "aggregated" or graph:
            if "mbp+graph" not in self.names:
                raise RunError("This run has no model of the world, so there is no planning over a graph.")
            self._agent("mbp+graph")
        self.landscape, self.graph, self.plans = landscape, graph, plans
        self._drawn.clear()

    def _do_pace(self, rate: int) -> None:
        self.pace = rate

    def _do_play(self) -> None:
        self.paused = False
        if self.phase == "late":
            self._go()

    def _do_pause(self) -> None:
        self.paused = True

    def _do_step(self) -> None:
        self.paused = True
        if self.phase == "reached":
            raise EnvError("The goal is reached; choose another, or push the agent away from it.")
        if self.phase == "idle" and not self._pushes:
            raise EnvError("Choose a goal first.")
        self._step()

    def _do_reset(self) -> None:
        self._begin(self._start)

    # How the world goes on.

    def _begin(self, case: Case) -> None:
        """Start an episode; the goal is that of the case, or on a map what it was before."""
        if self.plan is None:
            self.goal = None
        self._renew()
        self._see(begin_case(self.env, case, self.seed + self._episodes))
        if self.plan is None and case.goal is not None:
            self._start, self.goal = case, tuple(self._seen["desired_goal"].tolist())
        if self.goal is not None:
            self._go(afresh=True)

    def _renew(self) -> None:
        """Forget what belongs to the episode so far."""
        self._episodes += 1
        self._pushes.clear()
        self._drawn.clear()
        self._unsettled, self._ended, self.steps, self.phase = 0, False, 0, "idle"

    def _go(self, *, afresh: bool = False) -> None:
        """Set out for the goal, with all the time an episode has."""
        self._require_time()
        if afresh:
            self._unsettled, self.phase = 0, "idle"
            self._instruct(self.controller)  # which may fail
        self.steps, self.phase = 0, "going"
        if afresh:
            self._arrive()

    def _require_time(self) -> None:
        if self._ended:
            raise EnvError("The environment has ended this episode; reset it to go on.")

    def _instruct(self, name: str) -> None:
        """Tell an agent the goal; it makes its plans anew."""
        assert self.goal is not None
        self._agent(name).reset(self.goal, self.seed + self._episodes)
        self._told[name] = self.goal

    def _agent(self, name: str) -> Agent:
        if name not in self._agents:
            self._agents[name] = Agent(self.task, make_controller(name, self.parts))
        return self._agents[name]

    def _step(self) -> None:
        """One action and what comes of it."""
        self._require_time()
        if self._pushes:
            action = self._pushes.popleft()
        else:
            began = time.perf_counter()
            action = self._agent(self.controller).act(self._seen["observation"])
            self._seconds.append(time.perf_counter() - began)
        seen, _, self._ended, _, _ = self.env.step(action)
        self._see(seen)
        self.steps += 1
        self._unsettled = max(0, self._unsettled - 1)
        self._arrive()
        if self._ended:
            self._pushes.clear()
            self.phase = "reached" if self.phase == "reached" else "over"
        elif self.phase == "going" and self.steps >= self.task.episode_length:
            self.phase = "late"

    def _arrive(self) -> None:
        """Notice that the goal is reached."""
        if self.goal is not None and not self._unsettled:
            achieved = self._seen["achieved_goal"]
            if bool(self.task.success(achieved, np.array(self.goal))):
                self.phase = "reached"

    def _see(self, seen: Observation) -> None:
        self._seen = {name: np.asarray(value, np.float64) for name, value in seen.items()}

    def _is_free(self, place: tuple[float, ...]) -> bool:
        assert self.plan is not None
        row, column = (int(np.floor(x + self.plan.offset + 0.5)) for x in place)
        rows, columns = self.plan.free.shape
        return 0 <= row < rows and 0 <= column < columns and bool(self.plan.free[row, column])

    # What a page is told.

    def _report(self) -> Iterator[Message | bytes]:
        """How things are, and what is drawn beside it."""
        yield self._state()
        if self.plan is not None:
            if self.goal is not None:
                yield from self._overlays(self.goal)
        elif self._renders and (time.monotonic() - self._framed > FRAME_SECONDS or not self.running):
            try:
                yield jpeg(np.asarray(self.env.render()))
            except EnvError:
                self._renders = False  # say so once
                raise
            self._framed = time.monotonic()

    def _state(self) -> Message:
        rate = len(self._seconds) / sum(self._seconds) if self._seconds else None
        return {
            "type": "state",
            "answered": self._answered,
            "episode": self._episodes,
            "steps": self.steps,
            "phase": self.phase,
            "paused": self.paused,
            "controller": self.controller,
            "pace": self.pace,
            "rate": None if rate is None else round(rate, 1),
            "goal": None if self.goal is None else list(self.goal),
            "achieved": rounded(self._seen["achieved_goal"]),
            "observation": rounded(self._seen["observation"]),
            "pushed": bool(self._pushes),
            "plans": self._imagined(),
            "show": {"landscape": self.landscape, "graph": self.graph, "plans": self.plans},
        }

    def _imagined(self) -> list[Any]:
        """Where the best of the last plan lead, on the map."""
        agent = self._agents.get(self.controller)
        if not self.plans or self.plan is None or self.phase != "going" or agent is None:
            return []
        acting = agent.controller
        report: PlanReport | None = acting.planner.report if isinstance(acting, PlanningController) else None
        return [] if report is None else rounded(report.elite_states[0, :SHOWN_ELITES, :, :2].cpu())

    def _overlays(self, goal: tuple[float, ...]) -> Iterator[Message]:
        """The landscape and the graph, where they are wanted and not what they were."""
        assert self.plan is not None
        observation = self._seen["observation"]
        state = torch.from_numpy(observation).float()
        beside = np.zeros(len(observation))
        others = [index for index in self.task.goal_indices or () if index > 1]
        beside[others] = np.round(observation[others])
        place = (self.landscape, goal, tuple(beside.tolist()))
        if self.landscape != "none" and self._drawn.get("landscape") != place:
            self._drawn["landscape"] = place
            value: ValueFunction = self._values.value
            if self.landscape == "aggregated":
                value = aggregated(self._objective(goal), state)
            case = Case("", goal, place[2])
            yield landscape(self.landscape, value, self.task, self.plan, case, self._values.gamma)
        moment = (goal, self._episodes, self.steps // GRAPH_EVERY, self.running)
        if self.graph and self._drawn.get("graph") != moment:
            self._drawn["graph"] = moment
            yield describe_graph(view(self._objective(goal).wayfinder, 0, state))

    def _objective(self, goal: tuple[float, ...]) -> AggregatedValue:
        """What planning over the graph maximises, whoever acts at present."""
        agent = self._agent("mbp+graph")
        if self._told.get("mbp+graph") != goal:
            self._instruct("mbp+graph")
        assert isinstance(agent.controller, PlanningController)
        objective = agent.controller.planner.objective
        assert isinstance(objective, AggregatedValue)
        return objective
