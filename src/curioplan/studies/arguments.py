"""Arguments of jobs as JSON: settings by preset and what differs from it, folders relative to the study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from curioplan.config import DiagnoseConfig, ExploreConfig, ReachConfig, StageConfig, TrainModelConfig
from curioplan.options import with_field
from curioplan.presets import preset
from curioplan.runs import UNBOUND

FOLDER, SETTINGS = "$folder", "$settings"
STAGES: dict[str, Any] = {
    "explore": ExploreConfig,
    "train-model": TrainModelConfig,
    "reach": ReachConfig,
    "diagnose": DiagnoseConfig,
}
"""Stages with one kind of settings; ``learn`` has those of the learner, ``polo`` its own."""


def folder(path: str) -> dict[str, Any]:
    """Stands in a job's arguments for a folder of the study."""
    return {FOLDER: path}


def settings(
    stage: str, preset: str, changed: Mapping[str, Any] | None = None, algo: str = "", env: str = ""
) -> dict[str, Any]:
    """Stands in a job's arguments for the settings of a stage.

    Args:
        stage: ``explore``, ``polo``, ``train-model``, ``learn``, ``reach`` or ``diagnose``.
        preset: Where the settings start from.
        changed: Fields that differ from it, by dotted name.
        algo: The learner, for ``learn``.
        env: The environment. It is named only if the preset makes an exception for it, so that what has
            finished in other environments stays so when a preset begins to make one.
    """
    learner = {"algo": algo} if algo else {}
    given = {SETTINGS: stage, **learner, "preset": preset, "changed": dict(changed or {})}
    special = given | {"env": env}
    return given if resolve_settings(given) == resolve_settings(special) else special


def resolve(arguments: Any, study: Path) -> Any:
    """Arguments as a stage takes them: paths and settings in place of what stands for them."""
    if isinstance(arguments, Mapping):
        if FOLDER in arguments:
            return study / arguments[FOLDER]
        if SETTINGS in arguments:
            return resolve_settings(arguments)
        return {key: resolve(value, study) for key, value in arguments.items()}
    if isinstance(arguments, list):
        return [resolve(value, study) for value in arguments]
    return arguments


def resolve_settings(given: Mapping[str, Any]) -> StageConfig:
    """The settings that :func:`settings` stands for.

    Raises:
        ConfigError: There is no such preset or field, or a value is impossible.
    """
    env = given.get("env", "")
    if given[SETTINGS] == "learn":
        from curioplan.values import learner_config

        start: StageConfig = learner_config(given["algo"], given["preset"], env)
    elif given[SETTINGS] == "polo":
        from curioplan.stages.polo import polo_config

        start = polo_config(given["preset"], env)
    else:
        start = preset(given["preset"], STAGES[given[SETTINGS]], env)
    for name, value in given["changed"].items():
        start = with_field(start, name, value)
    return start


def anywhere(arguments: Any) -> Any:
    """Arguments without the settings that say where is computed: of the same result, wherever that was."""
    if isinstance(arguments, Mapping):
        kept = {key: value for key, value in arguments.items() if key not in UNBOUND}
        return {key: anywhere(value) for key, value in kept.items()}
    return [anywhere(value) for value in arguments] if isinstance(arguments, list) else arguments


def folders(arguments: Any) -> list[str]:
    """The folders of the study that arguments name."""
    return [node[FOLDER] for node in _nodes(arguments) if FOLDER in node]


def complete_settings(arguments: Any) -> dict[str, Any]:
    """All settings that arguments stand for, with every field, by stage."""
    return {node[SETTINGS]: asdict(resolve_settings(node)) for node in _nodes(arguments) if SETTINGS in node}


def _nodes(arguments: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(arguments, Mapping):
        yield arguments
    if isinstance(arguments, Mapping | list):
        for value in arguments.values() if isinstance(arguments, Mapping) else arguments:
            yield from _nodes(value)
