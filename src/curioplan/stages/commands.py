"""The commands that make a run again, from the settings its stages have left."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from curioplan.config import (
    PRESETS,
    DiagnoseConfig,
    EvaluateConfig,
    ExploreConfig,
    TrainModelConfig,
    differences,
    from_dict,
    preset,
)
from curioplan.stages.evaluate import default_name as evaluation_name
from curioplan.stages.train import default_name as training_name
from curioplan.values import learner_class, learner_config

Settings = Mapping[str, Any]


def explore_command(run: Path, env: str, settings: Settings) -> str:
    """How to explore so again."""
    config = from_dict(ExploreConfig, settings)
    words = ["curioplan", "explore", env, "--out", str(run)]
    return _joined(
        words + _flags(asdict(config), {name: asdict(preset(name, ExploreConfig)) for name in PRESETS})
    )


def model_command(run: Path, env: str, settings: Settings, name: str) -> str:
    """How to train such a model again."""
    config = from_dict(TrainModelConfig, settings)
    words = ["curioplan", "train-model", str(run)]
    words += ["--env", env] if config.data else []
    words += ["--name", name] if name != "offline" else []
    starts = {chosen: asdict(preset(chosen, TrainModelConfig)) for chosen in PRESETS}
    return _joined(words + _flags(asdict(config), starts))


def train_command(run: Path, env: str, settings: Settings, name: str) -> str:
    """How to learn such values again."""
    algo = str(settings["algo"])
    config = from_dict(learner_class(algo).Config, settings)
    words = ["curioplan", "train", str(run), "--algo", algo]
    words += ["--env", env] if config.data else []
    words += ["--name", name] if name != training_name(config) else []
    starts = {chosen: asdict(learner_config(algo, chosen)) for chosen in PRESETS}
    return _joined(words + _flags(asdict(config), starts))


def evaluate_command(run: Path, settings: Settings, name: str) -> str:
    """How to evaluate so again."""
    config = from_dict(EvaluateConfig, settings)
    words = ["curioplan", "evaluate", str(run)]
    words += ["--name", name] if name != evaluation_name(config) else []
    starts = {chosen: asdict(preset(chosen, EvaluateConfig)) for chosen in PRESETS}
    return _joined(words + _flags(asdict(config), starts))


def diagnose_command(run: Path, settings: Settings, name: str) -> str:
    """How to diagnose so again."""
    config = from_dict(DiagnoseConfig, settings)
    starts = {chosen: asdict(preset(chosen, DiagnoseConfig)) for chosen in PRESETS}
    return _joined(["curioplan", "diagnose", str(run), "--name", name, *_flags(asdict(config), starts)])


def _flags(settings: Settings, starts: Mapping[str, Settings]) -> list[str]:
    """The preset that is nearest to some settings, and what else must be said."""
    changes = {name: differences(start, settings) for name, start in starts.items()}
    nearest = min(changes, key=lambda name: (len(changes[name]), name != "cpu"))
    words = [] if nearest == "cpu" else ["--preset", nearest]
    for field, (_, value) in changes[nearest].items():
        flag = field.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words.append(f"--{flag}={value}")
    return words


def _joined(words: list[str]) -> str:
    return shlex.join(words)
