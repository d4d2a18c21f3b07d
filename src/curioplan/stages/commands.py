"""The commands that make a run again, from the settings its stages have left."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from curioplan.config import (
    DiagnoseConfig,
    EvaluateConfig,
    ExploreConfig,
    StageConfig,
    TrainModelConfig,
    differences,
    from_dict,
)
from curioplan.presets import PRESETS, PresetName, preset
from curioplan.stages.evaluate import default_name as evaluation_name
from curioplan.stages.train import default_name as training_name
from curioplan.values import learner_class, learner_config

Settings = Mapping[str, Any]


def explore_command(run: Path, env: str, settings: Settings) -> str:
    """How to explore so again."""
    config = from_dict(ExploreConfig, settings)
    words = ["curioplan", "explore", env, "--out", str(run)]
    return shlex.join(words + _flags(config, lambda name: preset(name, ExploreConfig, env)))


def model_command(run: Path, env: str, settings: Settings, name: str) -> str:
    """How to train such a model again."""
    config = from_dict(TrainModelConfig, settings)
    words = ["curioplan", "train-model", str(run)]
    words += ["--env", env] if config.data else []
    words += ["--name", name] if name != "offline" else []
    return shlex.join(words + _flags(config, lambda chosen: preset(chosen, TrainModelConfig, env)))


def train_command(run: Path, env: str, settings: Settings, name: str) -> str:
    """How to learn such values again."""
    algo = str(settings["algo"])
    config = from_dict(learner_class(algo).Config, settings)
    words = ["curioplan", "train", str(run), "--algo", algo]
    words += ["--env", env] if config.data else []
    words += ["--name", name] if name != training_name(config) else []
    return shlex.join(words + _flags(config, lambda chosen: learner_config(algo, chosen, env)))


def evaluate_command(run: Path, env: str, settings: Settings, name: str) -> str:
    """How to evaluate so again."""
    config = from_dict(EvaluateConfig, settings)
    words = ["curioplan", "evaluate", str(run)]
    words += ["--name", name] if name != evaluation_name(config) else []
    return shlex.join(words + _flags(config, lambda chosen: preset(chosen, EvaluateConfig, env)))


def diagnose_command(run: Path, env: str, settings: Settings, name: str) -> str:
    """How to diagnose so again."""
    config = from_dict(DiagnoseConfig, settings)
    words = ["curioplan", "diagnose", str(run), "--name", name]
    return shlex.join(words + _flags(config, lambda chosen: preset(chosen, DiagnoseConfig, env)))


def _flags(config: StageConfig, start: Callable[[PresetName], StageConfig]) -> list[str]:
    """The preset that is nearest to some settings, and what else must be said."""
    changes = {name: differences(asdict(start(name)), asdict(config)) for name in PRESETS}
    nearest = min(changes, key=lambda name: (len(changes[name]), name != "cpu"))
    words = [] if nearest == "cpu" else ["--preset", nearest]
    for field, (_, value) in changes[nearest].items():
        flag = field.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words.append(f"--{flag}={value}")
    return words
