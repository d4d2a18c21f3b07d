"""Value-driven exploration: POLO* and POLO**, which know their goals in training (Lowrey et al., 2019).

Both act by planning towards states whose value for a known goal is high or uncertain, and learn the dynamics
model and an ensemble of values on the way. They differ in what the values are regressed on: what MPPI reaches
in the model (POLO*), or what was reached by acting (POLO**).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from curioplan.analysis.landscape import landscape_figure
from curioplan.config import ExploreConfig, ExplorerName, PlannerConfig
from curioplan.data import TrajectoryStore
from curioplan.envs import Task
from curioplan.errors import ConfigError
from curioplan.models.training import buffers
from curioplan.planning import GoalReturn, ModelRollout, Planner
from curioplan.presets import PresetName, preset
from curioplan.runs import Stage, versions
from curioplan.seeding import seed_for
from curioplan.stages.explore import Explorer, explore_as
from curioplan.stages.runtime import keep_memory
from curioplan.stages.train import STAGE as VALUES
from curioplan.stages.train import default_name
from curioplan.storage import write_json
from curioplan.values import Problem, save_values
from curioplan.values.polo import POLO, POLOConfig


@dataclass(frozen=True)
class PoloValues:
    """The ensemble of values."""

    members: int = 6
    """Value networks."""
    prior: float = 3.0
    """Scale of the fixed random network added to each, by which they differ where nothing is known."""
    optimism: float = 20.0
    """How much of the members' disagreement is hoped for: κ of a log-sum-exp over them."""
    layers: int = 2
    """Hidden layers."""
    units: int = 512
    """Units per hidden layer."""
    learning_rate: float = 3e-4
    """Step size of Adam."""
    polyak: float = 0.995
    """Share of the target networks kept at each update."""
    batch_size: int = 256
    """States per update."""
    updates_per_step: float = 0.5
    """Updates per environment step."""

    def __post_init__(self) -> None:
        """Refuse impossible values; the learner refuses the others."""
        if not 0 < self.updates_per_step < float("inf"):
            raise ConfigError(f"updates_per_step must be above 0, not {self.updates_per_step}.")
        self.learner(0)

    def learner(self, seed: int) -> POLOConfig:
        """The settings of the learner."""
        return POLOConfig(
            seed=seed,
            batch_size=self.batch_size,
            layers=self.layers,
            units=self.units,
            critic_learning_rate=self.learning_rate,
            critic_loss="cross-entropy",
            polyak=self.polyak,
            members=self.members,
            prior=self.prior,
            optimism=self.optimism,
        )


@dataclass(frozen=True)
class PoloConfig(ExploreConfig):
    """Value-driven exploration towards goals known in training, with values learned on the way."""

    explorer: ExplorerName = field(default="value", init=False)
    """What is sought: states of high or uncertain value."""
    targets: Literal["on-policy", "mppi"] = "on-policy"
    """What values are regressed on: what acting reached (POLO**), or MPPI reaches in the model (POLO*)."""
    target_horizon: int = 0
    """Steps after which targets rest on the values themselves; 0 takes the task's horizon to reach goals."""
    values: PoloValues = field(default_factory=PoloValues)
    """The ensemble of values."""
    target_planner: PlannerConfig = field(
        default_factory=lambda: PlannerConfig(
            method="mppi", iterations=2, population=64, propagation="shared"
        )
    )
    """The optimiser of targets with mppi."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        super().__post_init__()
        if self.target_horizon < 0:
            raise ConfigError(f"target_horizon must be at least 0, not {self.target_horizon}.")


_OWN: dict[PresetName, Callable[[PoloConfig], PoloConfig]] = {
    "paper": lambda config: config,
    "cpu": lambda config: replace(
        config,
        values=replace(config.values, units=128, learning_rate=1e-3, batch_size=128, updates_per_step=0.25),
        target_planner=replace(config.target_planner, iterations=1, population=32),
    ),
    "smoke": lambda config: replace(
        config,
        values=replace(
            config.values, members=3, units=32, learning_rate=1e-3, batch_size=32, updates_per_step=0.1
        ),
        target_planner=replace(config.target_planner, iterations=1, population=8),
    ),
}


def polo_config(name: PresetName = "cpu", env: str = "") -> PoloConfig:
    """The settings of value-driven exploration in a preset: those of exploration, and its own."""
    shared = preset(name, ExploreConfig, env)
    taken = {entry.name: getattr(shared, entry.name) for entry in fields(ExploreConfig)}
    del taken["explorer"]
    return _OWN[name](PoloConfig(**taken))


def polo(env: str, out: str | Path, config: PoloConfig, *, progress: bool = True) -> Path:
    """Explore towards the goals of the task's cases, and leave trajectories, model and values in ``out``.

    The same call continues an interrupted run, with the same result as if it had not been interrupted. The
    run can then be evaluated: ``evaluate(out, "mbp", algo="polo", seed=config.seed)``; its trajectories and
    its model are where an exploration leaves them.

    Args:
        env: A short name, a Gymnasium id, or ``module:callable``.
        out: The run folder.
        config: The settings; ``polo_config("cpu")`` is a good start.
        progress: Whether to show a progress bar.

    Returns:
        The folder of the exploration.
    """
    keep_memory()
    return explore_as(PoloExplorer, env, out, config, progress=progress)


class PoloExplorer(Explorer):
    """An exploration that seeks value: an episode has a goal, and ends where it is reached."""

    config: PoloConfig

    def __init__(self, env: gym.Env, task: Task, config: PoloConfig) -> None:
        super().__init__(env, task, config)
        self.goals = known_goals(task).to(self.device)
        learning = replace(config.values.learner(config.seed), device=config.device)
        self.learner = POLO(Problem.of(task, self.data), learning, [config.seed])
        self.target_horizon = config.target_horizon or task.reach_horizon
        self.target_planner = Planner(
            config.target_planner,
            self.target_horizon,
            torch.tensor(task.action_low, device=self.device),
            torch.tensor(task.action_high, device=self.device),
            ModelRollout(self.model, config.target_planner.propagation, config.target_planner.particles),
            self._worth(self._expected, self.goals),
        )
        self.batches = torch.Generator().manual_seed(seed_for(config.seed, "value batches"))
        self.sought: list[int] = []  # the number of the goal of every episode
        self.info: dict[str, float] = {}

    def _worth(self, value: Callable[[Tensor, Tensor], Tensor], goals: Tensor) -> GoalReturn:
        """What planning towards goals maximises."""
        task = self.task
        return GoalReturn(value, task.success, task.goal_of, self.learner.problem.gamma, goals)

    def _optimistic(self, states: Tensor, goals: Tensor) -> Tensor:
        return self.learner.optimistic(states, goals)[0]

    def _expected(self, states: Tensor, goals: Tensor) -> Tensor:
        return self.learner.target_values(states, goals)[0].mean(0)

    def goal_number(self, episode: int) -> int:
        """Which of the known goals an episode has: a matter of the seed alone."""
        while len(self.sought) <= episode:
            rng = np.random.default_rng(seed_for(self.config.seed, "goal", len(self.sought)))
            self.sought.append(int(rng.integers(len(self.goals))))
        return self.sought[episode]

    def episode(self, bar: tqdm | None = None) -> None:
        """One episode: random at first, then towards what may be worth most."""
        number = self.goal_number(self.store.episodes)
        self.goal = self.goals[number].cpu()
        self.planner.objective = self._worth(self._optimistic, self.goals[number : number + 1])
        super().episode(bar)

    def is_over(self, observation: Mapping[str, NDArray[Any]]) -> bool:
        """Whether the goal is reached."""
        return bool(self.task.success(np.asarray(observation["achieved_goal"]), self.goal.numpy()))

    def learn_updates(self, loss: float | None) -> float | None:
        """Also take the updates of the values that are due by now."""
        loss = super().learn_updates(loss)
        due = int(self.config.values.updates_per_step * self.store.transitions) - self.learner.updates
        for _ in range(due):
            self.update_values()
        return loss

    def update_values(self) -> None:
        """One step of the values, towards what acting or planning attains from states in the data."""
        data, size = self.data, self.config.values.batch_size
        rows = data.sample_rows(size, self.batches)
        states = data.observations[rows]
        if self.config.targets == "on-policy":  # what was done for one goal tells nothing of another
            self.goal_number(data.episodes - 1)
            goals = self.goals[torch.tensor(self.sought, device=self.device)[data.episode_of[rows]]]
            targets = self.attained(data, rows, goals)
        else:
            drawn = torch.randint(len(self.goals), (size,), generator=self.batches)
            goals = self.goals[drawn.to(self.device)]
            targets = self.attainable(states, goals)
        info = self.learner.regress(*self.learner.inputs(states, goals), targets)
        self.info = {f"values/{key}": float(value[0]) for key, value in info.items()}

    def attained(self, data: TrajectoryStore, rows: Tensor, goals: Tensor) -> Tensor:
        """The returns (1, members, batch) that the data show from rows, with values at the horizon.

        An episode that ends before is continued by the values, too.
        """
        horizon, gamma = self.target_horizon, self.learner.problem.gamma
        last = data.last_rows[data.episode_of[rows]]
        ahead = rows[:, None] + torch.arange(1, horizon + 1, device=rows.device)
        met = self.task.success(data.achieved_goals[torch.minimum(ahead, last[:, None])], goals[:, None])
        reached, first = met.any(1), met.to(torch.uint8).argmax(1)
        steps = (last - rows).clamp(max=horizon)
        discount = gamma ** torch.where(reached, first, steps).float()
        future = self.learner.target_values(data.observations[rows + steps], goals)
        return torch.where(reached, discount, discount * future)

    def attainable(self, states: Tensor, goals: Tensor) -> Tensor:
        """The returns (1, members, batch) of MPPI's plans in the model, with values at the horizon."""
        planner, worth = self.target_planner, self._worth(self._expected, goals)
        seeds = [seed_for(self.config.seed, "targets", self.learner.updates, k) for k in range(len(states))]
        planner.objective = worth
        planner.reset(seeds)
        planner.act(states)
        plans = planner.plans.to(self.device)
        generators = [torch.Generator(self.device).manual_seed(seed + 1) for seed in seeds]
        rollout = planner.dynamics.rollout(states, plans[:, None], generators, disagreement=False)
        paths = rollout.states[:, 0]  # (batch, particles, H + 1, obs)
        wanted = goals[:, None].expand(*paths.shape[:2], -1)
        reached, discount = worth.arrivals(paths[..., 1:, :], wanted)
        future = self.learner.target_values(paths[..., -1, :].flatten(0, 1), wanted.flatten(0, 1))
        future = future.unflatten(2, tuple(paths.shape[:2]))
        return torch.where(reached, discount, discount * future).mean(-1)

    def measure(self, values: list[float], loss: float | None) -> None:
        """Also whether the goal was reached; and take the episode into the statistics of the values."""
        super().measure(values, loss)
        first, problem, data = int(self.store.first_rows[-1]), self.learner.problem, self.data
        problem.states.update(data.observations[first:])
        problem.goals.update(data.achieved_goals[first:])
        reached = bool(self.task.success(self.store.achieved_goals[-1], self.goal))
        if values:  # the return of a whole plan, of which there is no share per step
            self.metrics["objective"] = float(np.mean(values)) * self.planner.horizon
        self.metrics |= {"reached": int(reached), **self.info}
        self.info = {}

    def state(self) -> dict[str, Any]:
        """Everything but the data that is needed to go on exactly."""
        problem = self.learner.problem
        return super().state() | {
            "learner": self.learner.state(),
            "states": buffers(problem.states),
            "goals": buffers(problem.goals),
            "batches": self.batches.get_state(),
        }

    def resume(self, stage: Stage) -> None:
        """Take over the checkpoint the stage continues from, if there is one."""
        super().resume(stage)
        if stage.resumed is None:
            return
        state = stage.resumed.state
        self.learner.load(state["learner"])
        self.learner.problem.states.load_state_dict(state["states"])
        self.learner.problem.goals.load_state_dict(state["goals"])
        self.batches.set_state(state["batches"])

    def publish(self, folder: Path) -> None:
        """Also write the values, where a training would leave them."""
        super().publish(folder)
        config, learner = self.learner.config, self.learner
        values = folder.parent / VALUES / default_name(config)
        values.mkdir(parents=True, exist_ok=True)
        write_json(values / "config.json", {"settings": asdict(config), "versions": versions()})
        landscape_figure(
            lambda states, goals: learner.value(states, goals)[0],
            self.task,
            values / "values.png",
            store=self.store,
            gamma=learner.problem.gamma,
        )
        save_values(values / f"seed-{config.seed}.safetensors", learner, 0)


def known_goals(task: Task) -> Tensor:
    """The goals (goals, ·) of the task's cases, each once.

    Raises:
        ConfigError: There are none, or success cannot be told from imagined states.
    """
    found = dict.fromkeys(case.goal for case in task.cases if case.goal is not None)
    if not found:
        raise ConfigError(f"POLO needs goals that are known in training, and {task.name} has no cases.")
    task.goal_of(torch.zeros(1, task.observation_dim))  # refuses where goals cannot be imagined
    return torch.tensor(list(found), dtype=torch.float32)
