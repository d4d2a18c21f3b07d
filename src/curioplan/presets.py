"""Settings by name: what the paper used, what runs well on two cores, and what runs in seconds.

The defaults of every stage are the paper's, so the preset ``paper`` is each class as it is. A preset may make
exceptions for an environment.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, get_args

from curioplan.config import (
    Config,
    DiagnoseConfig,
    EvaluateConfig,
    ExploreConfig,
    GraphConfig,
    LearnConfig,
    ModelConfig,
    PlannerConfig,
    ReachConfig,
    TrainModelConfig,
)
from curioplan.errors import ConfigError
from curioplan.options import with_field

PresetName = Literal["paper", "cpu", "smoke"]
PRESETS: tuple[PresetName, ...] = get_args(PresetName)

_CPU_MODEL = ModelConfig(
    members=5, elites=5, layers=3, units=128, learning_rate=2e-3, batch_size=256, beta=0.5
)
_CPU_PLANNER = PlannerConfig(
    population=100, iterations=2, elite_ratio=0.1, replan_every=5, propagation="shared"
)
_CPU_GRAPH = GraphConfig(
    through="states",
    arrival=1.0,
    calibrated=True,
    candidates=10_000,
    density_goals=300,
    evaluate="checked",
    near_vertices=300,
)
_SMOKE_MODEL = replace(_CPU_MODEL, members=3, elites=2, layers=2, units=32, batch_size=64)
_SMOKE_PLANNER = replace(_CPU_PLANNER, population=16)
_CPU_REACH = ReachConfig(
    valuing="mean",
    graph=_CPU_GRAPH,
    planner=replace(_CPU_PLANNER, population=64, iterations=3, replan_every=2, propagation="mean"),
)
_SMOKE_REACH = ReachConfig(
    valuing="mean",
    planner=replace(_SMOKE_PLANNER, propagation="mean"),
    graph=replace(_CPU_GRAPH, vertices=50, candidates=500, density_goals=50),
)

_PRESETS: dict[PresetName, dict[type, Any]] = {
    "paper": {
        ExploreConfig: ExploreConfig(),
        TrainModelConfig: TrainModelConfig(),
        LearnConfig: LearnConfig(),
        ReachConfig: ReachConfig(),
        EvaluateConfig: EvaluateConfig(),
        DiagnoseConfig: DiagnoseConfig(),
    },
    "cpu": {
        ExploreConfig: ExploreConfig(
            updates_per_step=0.5, settle=10_000, threads=1, model=_CPU_MODEL, planner=_CPU_PLANNER
        ),
        TrainModelConfig: TrainModelConfig(updates=10_000, cooldown=0.3, threads=1, model=_CPU_MODEL),
        LearnConfig: LearnConfig(
            updates=20_000,
            units=256,
            actor_learning_rate=3e-4,
            critic_learning_rate=3e-4,
            cooldown=0.3,
            critic_loss="cross-entropy",
            reward="success",
            p_state=0.5,
            quick_units=128,
            threads=1,  # two of them wait for each other wherever another program wants a core
        ),
        ReachConfig: _CPU_REACH,
        EvaluateConfig: EvaluateConfig(threads=1, reach=_CPU_REACH),
        DiagnoseConfig: DiagnoseConfig(stride=5, threads=1, graph=_CPU_GRAPH),
    },
    "smoke": {
        ExploreConfig: ExploreConfig(
            steps=1500,
            warmup_steps=600,
            updates_per_step=0.2,
            settle=50,
            checkpoint_every=600,
            threads=1,
            model=_SMOKE_MODEL,
            planner=_SMOKE_PLANNER,
        ),
        TrainModelConfig: TrainModelConfig(
            updates=500, cooldown=0.3, checkpoint_every=200, threads=1, model=_SMOKE_MODEL
        ),
        LearnConfig: LearnConfig(
            epochs=20,
            units=64,
            batch_size=128,
            actor_learning_rate=1e-3,
            critic_learning_rate=1e-3,
            p_state=0.5,
            quick_units=32,
        ),
        ReachConfig: _SMOKE_REACH,
        EvaluateConfig: EvaluateConfig(threads=1, reach=_SMOKE_REACH),
        DiagnoseConfig: DiagnoseConfig(
            sequences=10, pool=100, stride=20, threads=1, graph=_SMOKE_REACH.graph
        ),
    },
}

_EXCEPTIONS: dict[tuple[PresetName, type, str], dict[str, Any]] = {
    # From one button to the next takes 39 steps: a plan of the task's 30 never sees the next press.
    ("cpu", ExploreConfig, "pinpad"): {"horizon": 50},
    # A point mass among walls is soon known.
    **{("cpu", ExploreConfig, f"maze_{size}"): {"settle": 3000} for size in ("umaze", "medium")},
    # Plans of the task's 30 steps dwell on the walls nearby, long after they are known. These see further; to
    # cost no more, they are made less often. With fewer random episodes and fewer updates than elsewhere, all
    # cells are visited sooner.
    ("cpu", ExploreConfig, "maze_large"): {
        "warmup_steps": 1200,
        "updates_per_step": 0.25,
        "settle": 3000,
        "horizon": 50,
        "foresight": 0.99,
        "whims": 0.2,
        "planner.replan_every": 10,
    },
    # Between a button pressed and the same button not pressed there is nothing to value.
    ("cpu", ReachConfig, "pinpad"): {"valuing": "particles"},
    # With the task's 1000 vertices ways are longer than need be, and more depends on how they are drawn.
    ("cpu", GraphConfig, "maze_large"): {"vertices": 2000},
    # Its hundred vertices are few for 36 histories: with the bottleneck alone, much depends on their draw.
    # Particles are averaged there, so that dividing detours out would change plans, which was not tried.
    ("cpu", GraphConfig, "pinpad"): {"trust": 3.0, "calibrated": False},
}
"""What is different in an environment: fields, by dotted name, of a class of settings wherever it occurs, so
that exceptions to how goals are reached hold for evaluation, too."""


def preset(name: PresetName, stage: type[Config], env: str = "") -> Config:
    """The settings of a stage in a preset.

    Args:
        name: The preset.
        stage: The class of the stage's settings.
        env: The environment, by its short name or its Gymnasium id, whose exceptions are to be made.

    Raises:
        ConfigError: There is no such preset.
    """
    if name not in _PRESETS:
        raise ConfigError(f"There is no preset {name}; there are {', '.join(PRESETS)}.")
    usual: Config = _PRESETS[name][stage]
    return _with_exceptions(usual, name, short_name(env)) if env else usual


def _with_exceptions(config: Any, name: PresetName, env: str) -> Any:
    """Settings with the exceptions for an environment: those of their parts first, then their own."""
    parts = {entry.name: getattr(config, entry.name) for entry in fields(config)}
    changed = {
        part: _with_exceptions(value, name, env) for part, value in parts.items() if is_dataclass(value)
    }
    config = replace(config, **changed)
    for field, value in _EXCEPTIONS.get((name, type(config), env), {}).items():
        config = with_field(config, field, value)
    return config


def short_name(env: str) -> str:
    """What an environment is called on the command line, if it has such a name, else its Gymnasium id."""
    from curioplan.envs import SHORT_NAMES  # imports what only those who name an environment need

    return next((short for short, identifier in SHORT_NAMES.items() if identifier == env), env)
