"""Offline value learning: from trajectories alone to V̂(s; g) and π(s; g)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from curioplan.analysis.geodesic import MazeTimes
from curioplan.analysis.landscape import landscape_figure
from curioplan.analysis.values import ValueFunction, calibration, rank_correlation
from curioplan.config import LearnConfig
from curioplan.data import Batch, Relabelling, TrajectoryStore, gather, sample_batch
from curioplan.data.relabel import stack_batches
from curioplan.devices import find_device
from curioplan.envs import Task, make_task
from curioplan.errors import ConfigError, EnvError, RunError
from curioplan.models import GaussianEnsemble
from curioplan.runs import Stage, open_stage, read_run, run_environment, stage_name
from curioplan.seeding import seed_for
from curioplan.stages.runtime import keep_memory, progress_bar, torch_threads
from curioplan.stages.train_model import fingerprint, load_model
from curioplan.storage import write_json
from curioplan.values import Info, Problem, Values, learner_class, learner_config, save_values

STAGE = "values"
INTERVAL = 250  # updates between two lines of metrics, unless checkpoints come more often
CALIBRATION_PAIRS = 512
RANK_PAIRS = 5000
QUICK_GOALS = Relabelling(p_goal=0.6, p_geometric=0.04, p_near=0.5)
"""Goals the quick network learns values for: up to the lengths that edges of a graph have, and beyond."""


def train(
    run: str | Path,
    algo: str = "td3",
    config: LearnConfig | None = None,
    *,
    env: str | None = None,
    name: str = "",
    progress: bool = True,
) -> Path:
    """Learn a goal-conditioned value function and policy offline, and leave them in the run folder.

    The same call continues an interrupted training, with the same result as if it had not been interrupted.

    Args:
        run: The run folder: of an exploration, or a new one for data from elsewhere.
        algo: The learner, by name.
        config: Its settings; by default those of preset ``cpu`` for the environment.
        env: The environment of a new run.
        name: What to call the result; by default the learner and its seeds, such as ``td3-0``.
        progress: Whether to show a progress bar.

    Returns:
        The folder of the stage: ``seed-<n>.safetensors`` for every seed, ``values.json`` with what they
        are worth, and a figure.
    """
    run = Path(run)
    if config and config.algo != algo:
        raise ConfigError(f"These are settings of {config.algo}, not of {algo}.")
    env = run_environment(run, env, config.data if config else "")
    config = config or learner_config(algo, env=env)
    name = stage_name(name or default_name(config))
    device, task = find_device(config.device), make_task(env)
    keep_memory()
    with torch_threads(config.threads):
        own = run / "explore" / "data"
        store = gather(config.data, own, task, size=config.size, seed=config.seed).to(device)
        needed = learner_class(algo).needs_model
        model = load_model(run, config.model, device=config.device) if needed else None
        with open_stage(run, f"{STAGE}/{name}", env, config) as stage:
            trainer = ValueTrainer(store, task, config, model)
            trainer.resume(stage)
            title = f"learning values of {task.name} ({algo})"
            with progress_bar(title, "updates", trainer.total, trainer.learner.updates, show=progress) as bar:
                while trainer.learner.updates < trainer.total:
                    trainer.advance(bar)
                    bar.set_postfix_str(trainer.report(), refresh=False)
                    stage.metrics.write(trainer.learner.updates, trainer.metrics)
                    trainer.checkpoint(stage)
            for number, seed in enumerate(trainer.learner.seeds):
                save_values(stage.folder / f"seed-{seed}.safetensors", trainer.learner, number)
            trainer.draw(stage.folder)
            write_json(stage.folder / "values.json", trainer.judge())
            return stage.folder


class ValueTrainer:
    """The state of a training: learners and the sources of their batches.

    Each learner draws batches of its own, from all trajectories or from its own resample of them. Everything
    is where the store is but the generators: checkpoints fit any device.
    """

    def __init__(
        self, store: TrajectoryStore, task: Task, config: LearnConfig, model: GaussianEnsemble | None
    ) -> None:
        self.store, self.task, self.config = store, task, config
        seeds = range(config.seed, config.seed + config.seeds)
        self.learner = learner_class(config.algo)(
            Problem.of(task, store, config.gamma, whole=config.p_state > 0), config, list(seeds), model
        )
        self.generators = [torch.Generator().manual_seed(seed_for(seed, "batches")) for seed in seeds]
        self.among = [
            resample_trajectories(store, seed_for(seed, "bootstrap"))
            if config.bootstrap == "trajectories"
            else None
            for seed in seeds
        ]
        self.relabelling = Relabelling(config.p_goal, config.p_geometric, config.p_near)
        epochs = round(config.epochs * store.transitions / config.batch_size)
        self.total = config.updates or max(1, epochs)
        self.fingerprint = fingerprint(store)
        self.saved = 0
        self.metrics: dict[str, float | int | None] = {}

    def batch(self) -> Batch:
        """Relabelled transitions (learners, batch, ·) to learn from."""
        return self._draw(self.relabelling, self.learner.lookahead)

    def _draw(self, relabelling: Relabelling, lookahead: int = 1) -> Batch:
        """Relabelled transitions (learners, batch, ·)."""
        config, problem = self.config, self.learner.problem
        success = self.task.success if config.reward == "success" else None
        batch = stack_batches(
            [
                sample_batch(
                    self.store,
                    config.batch_size,
                    relabelling,
                    generator,
                    among,
                    success,
                    lookahead,
                    config.p_state,
                )
                for generator, among in zip(self.generators, self.among, strict=True)
            ]
        )
        if batch.whole is not None:
            batch.goals = problem.goals_of(batch.goals, self.store.observations[batch.goal_rows], batch.whole)
        return batch

    def advance(self, bar: tqdm | None = None) -> None:
        """Learn up to the next measurement, and measure."""
        interval = min(INTERVAL, self.config.checkpoint_every)
        stop = min(self.total, (self.learner.updates // interval + 1) * interval)
        sums: dict[str, Tensor] = {}
        counts: dict[str, int] = {}
        while self.learner.updates < stop:
            self.learner.scale_rates(self.pace)
            info: Info = self.learner.update(self.batch())
            if self.config.quick_units and self.learner.updates % self.config.quick_every == 0:
                info |= self.learner.distil(self._draw(QUICK_GOALS))
            for key, value in info.items():
                sums[key] = sums[key] + value if key in sums else value
                counts[key] = counts.get(key, 0) + 1
            if bar is not None:
                bar.update()
        means = {key: (total / counts[key]).tolist() for key, total in sums.items()}
        self.metrics = self._named(means)
        if self.learner.updates % self.config.checkpoint_every == 0 or stop == self.total:
            several = len(self.learner.seeds) > 1
            for number, seed in enumerate(self.learner.seeds):
                prefix = f"seed-{seed}/" if several else ""
                self.metrics |= {prefix + key: value for key, value in self.calibrate(number).items()}

    @property
    def pace(self) -> float:
        """The factor on the learning rates: one until the cooldown, in which it falls linearly to zero."""
        left = 1 - self.learner.updates / self.total
        return min(1.0, left / self.config.cooldown) if self.config.cooldown else 1.0

    def calibrate(self, number: int) -> dict[str, float | int | None]:
        """How a learner's values of states some steps ahead compare with what the data prove possible."""
        seed, gamma = self.learner.seeds[number], self.learner.problem.gamma
        generator = torch.Generator().manual_seed(seed_for(seed, "calibration"))
        value = self._value_of(number)
        return {**calibration(value, self.store, gamma, pairs=CALIBRATION_PAIRS, generator=generator)}

    def judge(self) -> dict[str, dict[str, float | int | None]]:
        """What the values are worth, by seed: calibration and, in mazes, rank correlation with true times."""
        found = {f"seed-{seed}": self.calibrate(number) for number, seed in enumerate(self.learner.seeds)}
        try:
            times = MazeTimes(self.task)
        except EnvError:
            return found
        for number, seed in enumerate(self.learner.seeds):
            generator = torch.Generator().manual_seed(seed_for(seed, "rank correlation"))
            value = self._value_of(number)
            found[f"seed-{seed}"] |= rank_correlation(value, self.store, times.steps, RANK_PAIRS, generator)
        return found

    def _named(self, means: dict[str, list[float]]) -> dict[str, float | int | None]:
        """Metrics by name, and by seed where there are several."""
        if len(self.learner.seeds) == 1:
            return {key: values[0] for key, values in means.items()}
        return {
            f"seed-{seed}/{key}": value
            for key, values in means.items()
            for seed, value in zip(self.learner.seeds, values, strict=True)
        }

    def report(self) -> str:
        """The live line, of the first learner."""
        prefix = f"seed-{self.learner.seeds[0]}/" if len(self.learner.seeds) > 1 else ""
        shown = {key: self.metrics.get(prefix + key) for key in ("td_error", "q")}
        return ", ".join(f"{key} {value:.3g}" for key, value in shown.items() if value is not None)

    def draw(self, folder: Path) -> None:
        """The figure of the first learner's values."""
        landscape_figure(
            self._value_of(0),
            self.task,
            folder / "values.png",
            store=self.store,
            gamma=self.learner.problem.gamma,
        )

    def _value_of(self, number: int) -> ValueFunction:
        return lambda states, goals: self.learner.value(states, goals)[number]

    def checkpoint(self, stage: Stage) -> None:
        """Save when enough updates have passed, and at the end; draw where a figure is due."""
        every, updates = self.config.checkpoint_every, self.learner.updates
        if updates % self.config.figure_every == 0:
            self.draw(stage.folder)
        if updates // every > self.saved // every or updates == self.total:
            stage.save(updates, self.state())
            self.saved = updates

    def state(self) -> dict[str, Any]:
        """Everything but the data that is needed to go on exactly."""
        return {
            "learner": self.learner.state(),
            "generators": [generator.get_state() for generator in self.generators],
            "data": self.fingerprint,
        }

    def resume(self, stage: Stage) -> None:
        """Take over the checkpoint the stage continues from, if there is one."""
        if stage.resumed is None:
            return
        state = stage.resumed.state
        if state["data"] != self.fingerprint:
            raise RunError(
                f"The data have changed since {stage.folder} was begun; give the new values another name."
            )
        self.learner.load(state["learner"])
        for generator, saved in zip(self.generators, state["generators"], strict=True):
            generator.set_state(saved)
        self.saved = self.learner.updates


def resample_trajectories(store: TrajectoryStore, seed: int) -> Tensor:
    """Rows of the transitions of as many trajectories as there are, drawn with replacement."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(store.episodes, (store.episodes,), generator=generator)
    times = torch.bincount(chosen, minlength=store.episodes).to(store.device)
    rows = store.transition_rows
    return rows.repeat_interleave(times[store.episode_of[rows]])


def default_name(config: LearnConfig) -> str:
    """The learner and its seeds: td3-0, or td3-0-to-2."""
    last = config.seed + config.seeds - 1
    return f"{config.algo}-{config.seed}" + (f"-to-{last}" if config.seeds > 1 else "")


def find_values(run: str | Path, algo: str = "td3", seed: int = 0, name: str = "") -> Path:
    """The file of a trained value function: of a learner and seed, or of a seed in a named training."""
    run = Path(run)
    read_run(run)
    folders = [run / STAGE / stage_name(name)] if name else _trainings(run, algo, seed)
    found = [path for folder in folders if (path := folder / f"seed-{seed}.safetensors").is_file()]
    if not found:
        finished = sorted({path.parent.name for path in run.glob(f"{STAGE}/*/seed-*.safetensors")})
        there = f"finished are {', '.join(finished)}" if finished else "curioplan train makes them"
        raise RunError(f"{run} has no values of {name or algo} with seed {seed}; {there}.")
    return found[0]


def _trainings(run: Path, algo: str, seed: int) -> list[Path]:
    """Folders with the default name of a learner that include a seed."""
    found = []
    for folder in sorted((run / STAGE).glob(f"{algo}-*")):
        match = re.fullmatch(rf"{algo}-(\d+)(?:-to-(\d+))?", folder.name)
        if match and int(match[1]) <= seed <= int(match[2] or match[1]):
            found.append(folder)
    return found


def load_values(
    run: str | Path, algo: str = "td3", seed: int = 0, name: str = "", *, device: str = "cpu"
) -> Values:
    """A run's value function, as :func:`find_values` finds it, on a device."""
    return Values.load(find_values(run, algo, seed, name), find_device(device))
