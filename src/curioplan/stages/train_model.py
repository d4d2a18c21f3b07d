"""Offline training of the dynamics ensemble, for learners and planners that need a model of given data."""

from __future__ import annotations

import hashlib
import logging
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from curioplan.analysis.model_error import ModelError, model_error, model_error_figure
from curioplan.config import ModelConfig, TrainModelConfig, from_dict
from curioplan.data import TrajectoryStore, gather
from curioplan.devices import find_device
from curioplan.envs import Task, make_task
from curioplan.errors import RunError
from curioplan.models import GaussianEnsemble
from curioplan.presets import preset
from curioplan.runs import Stage, open_stage, read_run, run_environment, stage_name
from curioplan.seeding import seed_for
from curioplan.stages.runtime import progress_bar, torch_threads
from curioplan.storage import load_tree, read_json, save_tree, write_json

log = logging.getLogger(__name__)

STAGE = "models"
INTERVAL = 250  # updates between two measurements, unless checkpoints come more often
FEWEST_EPISODES = 10  # of fewer, each is worth more in training than as a judge
HORIZONS = (1, 2, 3, 5, 10, 15, 20, 30)


def train_model(
    run: str | Path,
    config: TrainModelConfig | None = None,
    *,
    env: str | None = None,
    name: str = "offline",
    progress: bool = True,
) -> Path:
    """Train a dynamics ensemble on given data and leave it in the run folder.

    The same call continues an interrupted training, with the same result as if it had not been interrupted.
    A share of the episodes (``held_out_episodes``) is kept from training, to measure errors on.

    Args:
        run: The run folder, existing or new.
        config: The settings; by default those of preset ``cpu`` for the environment.
        env: The environment of a new run.
        name: What to call the model, of which a run can have several.
        progress: Whether to show a progress bar.

    Returns:
        The folder of the stage: ``model.safetensors``, ``errors.json`` and ``errors.png``.
    """
    run, folder = Path(run), f"{STAGE}/{stage_name(name)}"
    env = run_environment(run, env, config.data if config else "")
    config = config or preset("cpu", TrainModelConfig, env)
    device, task = find_device(config.device), make_task(env)
    with torch_threads(config.threads):
        store = gather(config.data, run / "explore" / "data", task, size=config.size, seed=config.seed)
        known, unseen = (part.to(device) for part in split_episodes(store, config.held_out_episodes))
        with open_stage(run, folder, env, config) as stage:
            trainer = ModelTrainer(known, config)
            trainer.resume(stage)
            title = f"training a model of {task.name}"
            with progress_bar(title, "updates", config.updates, trainer.updates, show=progress) as bar:
                while trainer.updates < config.updates:
                    trainer.advance(bar)
                    bar.set_postfix_str(trainer.report(), refresh=False)
                    stage.metrics.write(trainer.updates, trainer.metrics)
                    trainer.checkpoint(stage)
            _publish(stage.folder, trainer.model, known, unseen, task)
            return stage.folder


class ModelTrainer:
    """The state of a training: model and counters. The data are gathered anew when it continues."""

    def __init__(self, store: TrajectoryStore, config: TrainModelConfig) -> None:
        self.store, self.config = store, config
        self.model = GaussianEnsemble(
            store.observation_dim,
            store.action_dim,
            config.model,
            seed_for(config.seed, "model"),
            store.device,
        )
        self.model.add(store.observations, store.actions, store.transition_rows)
        self.fingerprint = fingerprint(store)
        self.updates = self.saved = 0
        self.metrics: dict[str, float | int | None] = {}

    def advance(self, bar: tqdm | None = None) -> None:
        """Train up to the next measurement, and measure."""
        interval = min(INTERVAL, self.config.checkpoint_every)
        stop = min(self.config.updates, (self.updates // interval + 1) * interval)
        observations, actions = self.store.observations, self.store.actions
        losses = []
        while self.updates < stop:
            losses.append(self.model.update(observations, actions, 1, pace=self.pace))
            self.updates += 1
            if bar is not None:
                bar.update()
        likelihood = self.model.select_elites(observations, actions)
        self.metrics = {"loss": float(np.mean(losses))}
        if self.model.bootstrap.held_out_count:
            self.metrics["likelihood"] = float(likelihood[self.model.elites].mean())

    @property
    def pace(self) -> float:
        """The factor on the learning rate: one until the cooldown, in which it falls linearly to zero."""
        left = 1 - self.updates / self.config.updates
        return min(1.0, left / self.config.cooldown) if self.config.cooldown else 1.0

    def report(self) -> str:
        """The live line."""
        likelihood = self.metrics.get("likelihood")
        return f"loss {self.metrics['loss']:.3f}" + (
            "" if likelihood is None else f", log-likelihood {likelihood:.2f}"
        )

    def checkpoint(self, stage: Stage) -> None:
        """Save when enough updates have passed, and at the end."""
        every = self.config.checkpoint_every
        if self.updates // every > self.saved // every or self.updates == self.config.updates:
            stage.save(self.updates, {"model": self.model.state(), "data": self.fingerprint})
            self.saved = self.updates

    def resume(self, stage: Stage) -> None:
        """Take over the checkpoint the stage continues from, if there is one."""
        if stage.resumed is None:
            return
        if stage.resumed.state["data"] != self.fingerprint:
            raise RunError(
                f"The data have changed since {stage.folder} was begun; give the new model another name."
            )
        self.model.load(stage.resumed.state["model"])
        self.updates = self.saved = stage.resumed.step


def split_episodes(store: TrajectoryStore, share: float) -> tuple[TrajectoryStore, TrajectoryStore]:
    """Most episodes, and apart from them a share, evenly spaced; none of fewer than ten."""
    held = max(1, round(share * store.episodes)) if share and store.episodes >= FEWEST_EPISODES else 0
    apart = torch.zeros(store.episodes, dtype=torch.bool)
    apart[[int((k + 0.5) * store.episodes / held) for k in range(held)]] = True
    rows, unseen = store.rows(0, store.states), apart[store.episode_of]
    parts = []
    for keep in (~unseen, unseen):
        part = TrajectoryStore(store.observation_dim, store.goal_dim, store.action_dim)
        part.append_rows({name: values[keep] for name, values in rows.items()})
        parts.append(part)
    return parts[0], parts[1]


def measure_errors(
    model: GaussianEnsemble, known: TrajectoryStore, unseen: TrajectoryStore, task: Task
) -> dict[str, list[ModelError]]:
    """Errors one and more steps ahead on unseen episodes, over all dimensions and in two parts.

    These are objects, or else what goals are of, and all the rest. Objects rest most of the time and a robot
    never does: where most dimensions are of objects, their median tells nothing of the robot. Nor does that
    of noisy buttons tell anything of the ball that presses them.
    """
    longest = int(unseen.episode_lengths.max())
    horizons = [steps for steps in HORIZONS if steps <= longest]
    part = [k for thing in task.objects for k in thing.indices] or list(task.goal_indices or ())
    rest = [k for k in range(task.observation_dim) if k not in part]
    dims = {"all dimensions": list(range(task.observation_dim))}
    if part and rest:
        dims |= {"objects" if task.objects else "goals": part, "all else": rest}
    return {what: model_error(model, known, unseen, horizons, chosen) for what, chosen in dims.items()}


def find_model(run: str | Path, name: str = "") -> Path:
    """The weights of a run's model: exploration's, or that of a name given to ``train_model``."""
    run = Path(run)
    read_run(run)
    path = run / (f"{STAGE}/{stage_name(name)}" if name else "explore") / "model.safetensors"
    if path.is_file():
        return path
    names = sorted(found.parent.name for found in run.glob(f"{STAGE}/*/model.safetensors"))
    others = f"there are {', '.join(names)}" if names else "curioplan train-model makes one"
    if name:
        raise RunError(f"{run} has no finished model {name}; {others}.")
    raise RunError(f"{run} has no model from exploration, which would leave one at its end; {others}.")


def load_model(run: str | Path, name: str = "", *, device: str = "cpu") -> GaussianEnsemble:
    """A run's model, as :func:`find_model` finds it, on a device."""
    place, path = find_device(device), find_model(run, name)
    saved = read_json(path.parent / "config.json")
    try:
        config = from_dict(ModelConfig, saved["settings"]["model"])
    except (KeyError, TypeError, AttributeError):
        raise RunError(
            f"{path.parent / 'config.json'} is damaged: it holds no settings of a model."
        ) from None
    state = load_tree(path)
    try:
        dim = len(state["changes"]["mean"])
        model = GaussianEnsemble(dim, len(state["inputs"]["mean"]) - dim, config, device=place)
        model.load(state)
    except (KeyError, TypeError, RuntimeError):  # what torch raises where buffers are missing
        raise RunError(f"{path} is of another version of curioplan; train the model again.") from None
    return model


def fingerprint(store: TrajectoryStore) -> str:
    """A checksum of all trajectories."""
    digest = hashlib.sha256()
    for rows in store.rows(0, store.states).values():
        digest.update(rows.cpu().numpy().tobytes())
    return digest.hexdigest()


def _publish(
    folder: Path, model: GaussianEnsemble, known: TrajectoryStore, unseen: TrajectoryStore, task: Task
) -> None:
    """Write what later stages and people read: model, errors and their figure."""
    save_tree(folder / "model.safetensors", model.state())
    if unseen.episodes == 0:
        log.warning("No episode was kept from training, so the errors of the model are not measured.")
        return
    errors = measure_errors(model, known, unseen, task)
    write_json(
        folder / "errors.json",
        {
            "unit": "squared error, as a share of that of predicting no change",
            "episodes": {"training": known.episodes, "held out": unseen.episodes},
            "errors": {what: [_plain(error) for error in found] for what, found in errors.items()},
        },
    )
    model_error_figure(errors, folder / "errors.png")


def _plain(error: ModelError) -> dict[str, Any]:
    """An error as JSON can hold it: what is not finite becomes null."""
    return {key: value if math.isfinite(value) else None for key, value in asdict(error).items()}
