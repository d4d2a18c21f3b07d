"""Goal-reaching skills from curious exploration.

Importing the package registers its environments with Gymnasium; everything heavy is imported on first use.
"""

from importlib import import_module, metadata
from typing import Any

from curioplan.envs import check_env, make_env, make_task
from curioplan.errors import CurioplanError

__version__ = metadata.version("curioplan")

_LAZY = {
    "Agent": "curioplan.stages.control:Agent",
    "DiagnoseConfig": "curioplan.config:DiagnoseConfig",
    "EvaluateConfig": "curioplan.config:EvaluateConfig",
    "ExploreConfig": "curioplan.config:ExploreConfig",
    "ReachConfig": "curioplan.config:ReachConfig",
    "TrainModelConfig": "curioplan.config:TrainModelConfig",
    "TrajectoryStore": "curioplan.data:TrajectoryStore",
    "diagnose": "curioplan.stages.diagnose:diagnose",
    "evaluate": "curioplan.stages.evaluate:evaluate",
    "explore": "curioplan.stages.explore:explore",
    "load_data": "curioplan.data:load",
    "load_model": "curioplan.stages.train_model:load_model",
    "learner_config": "curioplan.values:learner_config",
    "load_outcomes": "curioplan.stages.evaluate:load_outcomes",
    "load_values": "curioplan.stages.train:load_values",
    "polo": "curioplan.stages.polo:polo",
    "polo_config": "curioplan.stages.polo:polo_config",
    "preset": "curioplan.presets:preset",
    "report": "curioplan.stages.report:report",
    "run_pipeline": "curioplan.stages.pipeline:run_pipeline",
    "save_data": "curioplan.data:save_minari",
    "train": "curioplan.stages.train:train",
    "train_model": "curioplan.stages.train_model:train_model",
}

__all__ = ["CurioplanError", "check_env", "make_env", "make_task", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"curioplan has no attribute {name}")
    module, _, attribute = _LAZY[name].partition(":")
    return getattr(import_module(module), attribute)
