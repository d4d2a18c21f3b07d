"""Evaluation: how often a controller reaches the goals of given cases, how fast, and on what ways."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from curioplan.analysis.statistics import CONFIDENCE, mean_interval
from curioplan.config import EvaluateConfig, ReachConfig
from curioplan.data import TrajectoryStore, gather
from curioplan.devices import find_device
from curioplan.envs import Case, Task, make_task
from curioplan.errors import RunError
from curioplan.presets import preset
from curioplan.runs import Stage, open_stage, read_run, stage_name, versions
from curioplan.seeding import seed_for
from curioplan.stages.cases import as_floats, choose_cases
from curioplan.stages.control import Controller, Parts, make_controller
from curioplan.stages.episodes import Outcome, run_cases
from curioplan.stages.runtime import progress_bar, torch_threads
from curioplan.stages.train_model import find_model
from curioplan.storage import load_tree, read_json, save_tree, write_json

STAGE = "evaluations"

__all__ = ["Outcome", "evaluate", "format_result", "load_outcomes", "run_cases", "run_evaluation"]


def evaluate(
    run: str | Path,
    controller: str = "mbp+graph",
    *,
    algo: str = "td3",
    seed: int = 0,
    values: str = "",
    model: str = "",
    cases: str = "",
    seeds: int = 1,
    config: ReachConfig | None = None,
    device: str = "cpu",
    name: str = "",
    progress: bool = True,
) -> Path:
    """Try a controller on the cases of a run's task, and leave what became of them in the run folder.

    The same call continues an interrupted evaluation, with the same result as if it had not been interrupted.

    Args:
        run: The run folder.
        controller: One of :data:`~curioplan.stages.control.CONTROLLERS`.
        algo: The learner of the value function.
        seed: Its seed.
        values: The name of its training, if it was given one.
        model: The name of the dynamics model; by default exploration's.
        cases: All of the task by default; else a ``.json`` file of goals, or a list separated by commas, of
            names of cases, ``own`` for all of them, and ``random:N`` for so many goals that the data achieve.
        seeds: How often each case is run, with seeds ``config.seed``, ``config.seed + 1``, …
        config: How goals are reached; by default as in preset ``cpu`` for the environment.
        device: Where to compute: ``cpu``, ``cuda``, one of several as ``cuda:1``, or ``auto``, which is CUDA
            where there is one.
        name: What to call the evaluation; by default after controller and values.
        progress: Whether to show a progress bar.

    Returns:
        The folder of the stage: ``result.json`` and ``trajectories.safetensors``, which
        :func:`load_outcomes` reads.
    """
    usual = preset("cpu", EvaluateConfig, str(read_run(Path(run))["env"]))
    settings = replace(
        usual,
        controller=controller,
        algo=algo,
        seed=seed,
        values=values,
        model=model,
        cases=cases,
        seeds=seeds,
        device=device,
        reach=config or usual.reach,
    )
    return run_evaluation(run, settings, name=name, progress=progress)


def run_evaluation(run: str | Path, config: EvaluateConfig, *, name: str = "", progress: bool = True) -> Path:
    """As :func:`evaluate`, with all settings in one."""
    run = Path(run)
    find_device(config.device)  # refuses before anything is written
    env = str(read_run(run)["env"])
    task, reach = make_task(env), config.reach
    parts = Parts(run, task, reach, config.algo, config.seed, config.values, config.model, config.device)
    name = stage_name(name or default_name(config))
    with torch_threads(config.threads):
        controller = make_controller(config.controller, parts)
        cases = choose_cases(config.cases, task, lambda: _data(parts, config), config.reach.seed)
        with open_stage(run, f"{STAGE}/{name}", env, config, may_grow=("seeds",)) as stage:
            evaluation = Evaluation(controller, task, cases, config, _fingerprints(parts, config, cases))
            evaluation.resume(stage)
            title, total = f"{config.controller} in {task.name}", config.seeds * len(cases)
            with progress_bar(title, "cases", total, len(evaluation.outcomes), show=progress) as bar:
                while evaluation.batches_left:
                    evaluation.advance(bar)
                    evaluation.checkpoint(stage)
            evaluation.publish(stage.folder)
            return stage.folder


class Evaluation:
    """The state of an evaluation: which batches of cases have been run, and what became of them."""

    def __init__(
        self,
        controller: Controller,
        task: Task,
        cases: list[Case],
        config: EvaluateConfig,
        fingerprints: dict[str, str],
    ) -> None:
        self.controller, self.task, self.config = controller, task, config
        self.fingerprints = fingerprints
        first, size = config.reach.seed, config.together
        self.batches = [
            (seed, cases[start : start + size])
            for seed in range(first, first + config.seeds)
            for start in range(0, len(cases), size)
        ]
        self.done = 0
        self.outcomes: list[Outcome] = []
        self.duration = 0.0

    @property
    def batches_left(self) -> int:
        """Batches that have not been run."""
        return len(self.batches) - self.done

    def advance(self, bar: tqdm | None = None) -> None:
        """Run the next batch."""
        began = time.perf_counter()
        seed, cases = self.batches[self.done]
        self.outcomes += run_cases(self.controller, self.task, cases, seed, bar=bar)
        self.duration += time.perf_counter() - began
        self.done += 1

    def checkpoint(self, stage: Stage) -> None:
        """Save what the last batch has added."""
        seed, cases = self.batches[self.done - 1]
        latest = self.outcomes[-len(cases) :]
        success = float(np.mean([outcome.success for outcome in latest]))
        stage.metrics.write(self.done, {"seed": seed, "cases": len(cases), "success": success})
        state = {
            "records": [outcome.record() for outcome in self.outcomes],
            "duration": self.duration,
            "fingerprints": self.fingerprints,
        }
        first = len(self.outcomes) - len(cases)
        tensors = {
            f"{first + number}.{name}": tensor
            for number, outcome in enumerate(latest)
            for name, tensor in outcome.tensors().items()
        }
        stage.save(self.done, state, {"episodes": tensors})

    def resume(self, stage: Stage) -> None:
        """Take over the checkpoint the stage continues from, if there is one."""
        if stage.resumed is None:
            return
        state = stage.resumed.state
        changed = [
            what for what, digest in state["fingerprints"].items() if self.fingerprints[what] != digest
        ]
        if changed:
            raise RunError(
                f"The {' and '.join(changed)} of {stage.folder} have changed since it was begun; give the "
                "new evaluation another name."
            )
        tensors: list[dict[str, Any]] = [{} for _ in state["records"]]
        for chunk in stage.resumed.journals["episodes"]:
            for key, tensor in chunk.items():
                number, _, name = key.partition(".")
                tensors[int(number)][name] = tensor
        self.outcomes = [Outcome.restore(*each) for each in zip(state["records"], tensors, strict=True)]
        self.duration, self.done = state["duration"], stage.resumed.step

    def publish(self, folder: Path) -> None:
        """Write trajectories and, last, the result, unless they are there."""
        path = folder / "result.json"
        if path.is_file() and read_json(path).get("episodes") == len(self.outcomes):
            return
        episodes = [{"record": outcome.record(), **outcome.tensors()} for outcome in self.outcomes]
        save_tree(folder / "trajectories.safetensors", {"episodes": episodes})
        write_json(path, self.result())

    def result(self) -> dict[str, Any]:
        """Success with its interval over episodes, each of a case and a seed, and what led to it."""
        config, outcomes = self.config, self.outcomes
        rng = np.random.default_rng(seed_for(config.reach.seed, "interval"))
        interval = mean_interval(np.array([[outcome.success] for outcome in outcomes]), rng)
        seconds = sum(outcome.seconds for outcome in outcomes)
        return {
            "success": interval.estimate,
            "interval": [interval.low, interval.high],
            "confidence": CONFIDENCE,
            "episodes": len(outcomes),
            "task": self.task.name,
            "controller": config.controller,
            "algo": config.algo,
            "seed": config.seed,
            "values": config.values,
            "model": config.model,
            "seeds": sorted({outcome.seed for outcome in outcomes}),
            "cases": [_summary(outcome) for outcome in outcomes],
            "rate": sum(len(outcome.actions) for outcome in outcomes) / seconds if seconds else None,
            "duration": self.duration,
            "machine": {
                "cores": os.cpu_count(),
                "threads": torch.get_num_threads(),
                "device": str(find_device(config.device)),
            },
            "versions": versions(),
        }


def load_outcomes(folder: str | Path) -> list[Outcome]:
    """What became of every case of a finished evaluation, with its trajectory.

    Args:
        folder: The folder that :func:`evaluate` returned.
    """
    path = Path(folder) / "trajectories.safetensors"
    saved = load_tree(path)
    try:
        return [
            Outcome.restore(
                episode["record"], {key: value for key, value in episode.items() if key != "record"}
            )
            for episode in saved["episodes"]
        ]
    except (KeyError, TypeError, AttributeError):
        raise RunError(f"{path} does not hold the trajectories of an evaluation.") from None


def format_result(folder: str | Path) -> str:
    """The result of an evaluation as a table, a line per case."""
    result = read_json(Path(folder) / "result.json")
    cases: dict[str, list[dict[str, Any]]] = {}
    for entry in result["cases"]:
        cases.setdefault(entry["case"], []).append(entry)
    width = max(4, *map(len, cases))
    lines = [f"{'case':<{width}}  reached   steps  length      Hz"]
    for name, entries in cases.items():
        reached = f"{sum(entry['success'] for entry in entries)}/{len(entries)}"
        means = [_mean(entry[key] for entry in entries) for key in ("steps", "path_length", "rate")]
        steps, length, rate = ("-" if mean is None else f"{mean:.4g}" for mean in means)
        lines.append(f"{name:<{width}}  {reached:>7} {steps:>7} {length:>7} {rate:>7}")
    low, high = result["interval"]
    lines.append(
        f"success {result['success']:.3f}, {result['confidence']:.0%} interval {low:.3f} to {high:.3f} over "
        f"{result['episodes']} episodes of {result['controller']} in {result['task']}"
    )
    return "\n".join(lines)


def uses_values(config: EvaluateConfig) -> bool:
    """Whether the controller needs a value function."""
    return config.controller != "mbp+sparse"


def default_name(config: EvaluateConfig) -> str:
    """The controller and what it is made of: mbp-graph-td3-0, or actor-td3-0-random-20."""
    words = [config.controller.replace("+", "-")]
    if uses_values(config):
        words += [config.values or config.algo, str(config.seed)]
    elif config.seed:
        words.append(str(config.seed))
    cases = Path(config.cases).stem if config.cases.endswith(".json") else config.cases
    words += [config.model, cases]
    return re.sub(r"[^\w.]+", "-", "-".join(word for word in words if word)).strip("-.")[:100]


def _mean(numbers: Iterable[float | None]) -> float | None:
    """The mean of those that are there."""
    known = [number for number in numbers if number is not None]
    return sum(known) / len(known) if known else None


def _summary(outcome: Outcome) -> dict[str, Any]:
    return {
        "case": outcome.case.name,
        "seed": outcome.seed,
        "goal": list(outcome.goal),
        "success": outcome.success,
        "steps": outcome.steps,
        "path_length": outcome.path_length,
        "rate": outcome.rate,
    }


def _data(parts: Parts, config: EvaluateConfig) -> TrajectoryStore:
    """The data that random goals are drawn from: what the values were learned from, or the exploration."""
    if uses_values(config):
        return parts.data()
    return gather("", parts.run / "explore" / "data", parts.task)


def _fingerprints(parts: Parts, config: EvaluateConfig, cases: list[Case]) -> dict[str, str]:
    """Checksums of all that the result rests on beside the settings."""
    found = {"goals": json.dumps([astuple(as_floats(case)) for case in cases]).encode()}
    if uses_values(config):
        found["values"] = parts.values_path().read_bytes()
    if config.controller != "actor":
        found["weights of the model"] = find_model(parts.run, config.model).read_bytes()
    return {what: hashlib.sha256(content).hexdigest() for what, content in found.items()}
