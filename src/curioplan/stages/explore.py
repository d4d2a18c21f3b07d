"""Curious exploration: act so that the ensemble disagrees, learn from what happens, and repeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from curioplan.analysis.exploration import exploration_figure
from curioplan.config import ExploreConfig
from curioplan.data import TrajectoryStore, save_minari
from curioplan.devices import find_device
from curioplan.envs import Task, make_env, make_task
from curioplan.errors import ConfigError
from curioplan.models import GaussianEnsemble
from curioplan.planning import Disagreement, Foresight, ModelRollout, Novelty, Planner
from curioplan.presets import preset
from curioplan.runs import Stage, open_stage
from curioplan.seeding import seed_for
from curioplan.stages.runtime import progress_bar, torch_threads
from curioplan.stages.whims import Whims
from curioplan.storage import load_tree, save_tree

STAGE = "explore"
FORESIGHT_BATCH = 32
"""Trajectories from which the value of disagreement is learned at a time, for half the cost of what the model
itself learns by."""
Settings = TypeVar("Settings", bound=ExploreConfig)


def explore(env: str, out: str | Path, config: ExploreConfig | None = None, *, progress: bool = True) -> Path:
    """Explore an environment and leave trajectories and model in the run folder ``out``.

    The same call continues an interrupted run, with the same result as if it had not been interrupted.

    Args:
        env: A short name, a Gymnasium id, or ``module:callable``.
        out: The run folder.
        config: The settings; by default those of preset ``cpu`` for the environment.
        progress: Whether to show a progress bar.

    Returns:
        The folder of the stage: ``data`` (Minari), ``model.safetensors`` and figures.
    """
    config = config or preset("cpu", ExploreConfig, env)
    if config.explorer == "value":
        raise ConfigError("Exploration that seeks value is curioplan polo, not a setting of explore.")
    return explore_as(Explorer, env, out, config, progress=progress)


def explore_as(
    kind: Callable[[gym.Env, Task, Settings], Explorer],
    env: str,
    out: str | Path,
    config: Settings,
    *,
    progress: bool = True,
) -> Path:
    """As :func:`explore`, with an explorer of some kind."""
    find_device(config.device)  # refuses before anything is written
    with closing(make_env(env)) as world, torch_threads(config.threads):
        task = make_task(env, world)
        with open_stage(Path(out), STAGE, env, config, may_grow=("steps",)) as stage:
            explorer = kind(world, task, config)
            explorer.resume(stage)
            title = f"exploring {task.name}"
            with progress_bar(title, "steps", config.steps, explorer.store.transitions, show=progress) as bar:
                while explorer.store.transitions < config.steps:
                    explorer.episode(bar)
                    bar.set_postfix_str(explorer.report(), refresh=False)
                    stage.metrics.write(explorer.store.transitions, explorer.metrics)
                    explorer.checkpoint(stage)
            explorer.checkpoint(stage, final=True)
            explorer.publish(stage.folder)
            explorer.settle(stage.folder, progress=progress)
            return stage.folder


class Explorer:
    """The state of an exploration: data, model, planner and counters.

    Steps are stored on the CPU, one by one; `data` is where the model learns from them.
    """

    def __init__(self, env: gym.Env, task: Task, config: ExploreConfig) -> None:
        self.env, self.task, self.config = env, task, config
        self.device = device = find_device(config.device)
        self.store = TrajectoryStore(task.observation_dim, task.goal_dim, task.action_dim)
        self._copy = self.store.to(device)
        self.model = GaussianEnsemble(
            task.observation_dim, task.action_dim, config.model, seed_for(config.seed, "model"), device
        )
        self.novelty = (
            Novelty(task.observation_dim, seed=seed_for(config.seed, "novelty"), device=device)
            if config.explorer == "novelty"
            else None
        )
        self.foresight = (
            Foresight(self.model, config.foresight, seed=seed_for(config.seed, "foresight"))
            if config.explorer == "disagreement" and config.foresight
            else None
        )
        planner = config.planner
        self.planner = Planner(
            planner,
            config.horizon or task.explore_horizon,
            torch.tensor(task.action_low, device=device),
            torch.tensor(task.action_high, device=device),
            ModelRollout(self.model, planner.propagation, planner.particles),
            self.novelty or self.foresight or Disagreement(),
        )
        self.whims = Whims(
            config.whims, self.planner.horizon, planner.replan_every, task.action_low, task.action_high
        )
        self.generator = torch.Generator().manual_seed(seed_for(config.seed, "novelty batches"))
        self.updates = 0
        self.learned = 0  # transitions the model has taken in
        self.saved = self.saved_states = 0  # transitions and states that checkpoints hold
        self.visited: set[int] = set()
        self.metrics: dict[str, float | int | None] = {}

    @property
    def data(self) -> TrajectoryStore:
        """All steps so far on the device: the store itself, or a copy there that is brought up to date."""
        if self._copy.states < self.store.states:
            self._copy.append_rows(self.store.rows(self._copy.states))
        return self._copy

    def episode(self, bar: tqdm | None = None) -> None:
        """One episode: random at first, then towards disagreement, learning on the way."""
        number = self.store.episodes
        warming_up = self.store.transitions < self.config.warmup_steps
        planned = not warming_up and self.config.explorer != "random"
        loss = None
        if planned and self.config.updates_per_step == 0:
            loss = self.learn_epochs()
        self.planner.reset([seed_for(self.config.seed, "planner", number)])
        rng = np.random.default_rng(seed_for(self.config.seed, "actions", number))
        observation, _ = self.env.reset(seed=seed_for(self.config.seed, "environment", number) % 2**31)
        self.store.begin(observation["observation"], observation["achieved_goal"])
        if planned:
            self.whims.recall(self.store.achieved_goals, rng)
        values, done = [], False
        while not done and self.store.transitions < self.config.steps:
            if not planned:
                action = rng.uniform(self.task.action_low, self.task.action_high).astype(np.float32)
            elif (whim := self.whims.act(observation["achieved_goal"], rng)) is not None:
                action = whim
            else:
                action, value = self._plan(observation["observation"])
                values.append(value)
            observation, _, terminated, truncated, _ = self.env.step(action)
            done = terminated or truncated or self.is_over(observation)
            self.store.step(action, observation["observation"], observation["achieved_goal"])
            if planned and self.store.transitions % self.config.learn_every == 0:
                loss = self.learn_updates(loss)
            if bar is not None:
                bar.update()
        self.measure(values, loss)

    def is_over(self, observation: Mapping[str, NDArray[Any]]) -> bool:
        """Whether there is nothing more to do in an episode."""
        return False

    def _plan(self, observation: NDArray[Any]) -> tuple[NDArray[np.float32], float]:
        """The next action, and the objective per step of the horizon that the planner expects."""
        state = torch.as_tensor(observation, dtype=torch.float32)[None]
        action = self.planner.act(state)[0].numpy()
        report = self.planner.report
        assert report is not None
        return action, float(report.elite_values[0, 0]) / self.planner.horizon

    def learn_epochs(self) -> float:
        """Train on all data for some epochs, as the paper does before each episode."""
        data = self._take_in()
        self._learn_along(data, self.config.epochs * data.transitions // self.config.model.batch_size)
        return self.model.fit(data.observations, data.actions, self.config.epochs)

    def learn_updates(self, loss: float | None) -> float | None:
        """Take the updates that are due by now; their number does not depend on the amount of data."""
        due = int(self.config.updates_per_step * self.store.transitions) - self.updates
        if self.config.updates_per_step == 0 or due <= 0:
            return loss
        data = self._take_in()
        self._learn_along(data, due)
        self.updates += due
        return self.model.update(data.observations, data.actions, due)

    def _take_in(self) -> TrajectoryStore:
        """Show the networks what is new in the data, and give all of them."""
        data = self.data
        rows = data.transition_rows[self.learned :]
        self.model.add(data.observations, data.actions, rows)
        if self.novelty is not None:
            self.novelty.add(data.observations[rows])
        self.learned = data.transitions
        return data

    def _learn_along(self, data: TrajectoryStore, updates: int) -> None:
        """Train what is sought beside the model, if anything is."""
        for _ in range(updates):
            if self.novelty is not None:
                rows = data.sample_rows(self.config.model.batch_size, self.generator)
                self.novelty.update(data.observations[rows])
            elif self.foresight is not None:
                rows = data.sample_rows(FORESIGHT_BATCH, self.generator)
                last = data.last_rows[data.episode_of[rows]]
                self.foresight.update(data.observations, data.actions, rows, last)

    def measure(self, values: list[float], loss: float | None) -> None:
        """Metrics of the episode that has just ended."""
        first = int(self.store.first_rows[-1])
        path = self.store.observations[first:].numpy()
        self.metrics = {"episode": self.store.episodes, "loss": loss}
        if self.model.bootstrap.held_out_count:
            data = self.data
            likelihood = self.model.select_elites(data.observations, data.actions)
            self.metrics["likelihood"] = float(likelihood[self.model.elites].mean())
        if values:
            self.metrics["objective"] = float(np.mean(values))
        if self.task.coverage is not None:
            self.visited |= set(self.task.coverage.index(path).tolist()) - {-1}
            self.metrics["coverage"] = len(self.visited)
        for thing in self.task.objects:
            moved = np.linalg.norm(path[:, thing.indices] - path[0, thing.indices], axis=-1)
            self.metrics[f"displacement/{thing.name}"] = float(moved.max())

    def report(self) -> str:
        """The live line: likelihood, objective and coverage."""
        parts = []
        if "likelihood" in self.metrics:
            parts.append(f"log-likelihood {self.metrics['likelihood']:.2f}")
        if "objective" in self.metrics:
            parts.append(f"{self.config.explorer} {self.metrics['objective']:.3g}")
        if self.task.coverage is not None:
            parts.append(f"{len(self.visited)}/{self.task.coverage.total} {self.task.coverage.unit}")
        return ", ".join(parts)

    def checkpoint(self, stage: Stage, *, final: bool = False) -> None:
        """Save at the end of an episode when enough steps have passed, or at the very end."""
        every, steps = self.config.checkpoint_every, self.store.transitions
        if steps // every > self.saved // every or (final and steps > self.saved):
            chunk = self.store.rows(self.saved_states)
            stage.save(steps, self.state(), {"data": chunk})
            self.saved, self.saved_states = steps, self.store.states

    def state(self) -> dict[str, Any]:
        """Everything but the data that is needed to go on exactly."""
        return {
            "model": self.model.state(),
            "novelty": self.novelty.state() if self.novelty else None,
            "foresight": self.foresight.state() if self.foresight else None,
            "generator": self.generator.get_state(),
            "updates": self.updates,
            "learned": self.learned,
            "visited": sorted(self.visited),
        }

    def resume(self, stage: Stage) -> None:
        """Take over the checkpoint the stage continues from, if there is one."""
        if stage.resumed is None:
            return
        state: Mapping[str, Any] = stage.resumed.state
        for chunk in stage.resumed.journals["data"]:
            self.store.append_rows(chunk)
        self.saved, self.saved_states = self.store.transitions, self.store.states
        self.model.load(state["model"])
        if self.novelty is not None:
            self.novelty.load(state["novelty"])
        if self.foresight is not None:
            self.foresight.load(state["foresight"])
        self.generator.set_state(state["generator"])
        self.updates, self.learned = state["updates"], state["learned"]
        self.visited = set(state["visited"])

    def settle(self, folder: Path, *, progress: bool = True) -> None:
        """Bring the model to rest, by updates whose step size falls to zero, and leave it to later stages.

        Checkpoints keep it as it was, so that exploration can go on. What was left after as many transitions
        stays as it is.
        """
        path, transitions = folder / "model.safetensors", self.store.transitions
        if path.is_file() and load_tree(path).get("transitions") == transitions:
            return
        updates = 0 if self.config.explorer == "random" else self.config.settle
        if updates:
            data = self._take_in()
            with progress_bar("settling the model", "updates", updates, 0, show=progress) as bar:
                for done in range(updates):
                    self.model.update(data.observations, data.actions, 1, pace=1 - done / updates)
                    bar.update()
            self.model.select_elites(data.observations, data.actions)
        save_tree(path, self.model.state() | {"transitions": transitions})

    def publish(self, folder: Path) -> None:
        """Write what later stages and people read: dataset and figure."""
        save_minari(self.store, folder / "data", task=self.task, overwrite=True)
        exploration_figure(self.store, self.task, folder / "exploration.png")
