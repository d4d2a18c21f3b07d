"""Arguments of jobs as JSON: settings by preset and what differs from it, folders relative to the study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from curioplan.config import ExploreConfig, ReachConfig, StageConfig, TrainModelConfig, preset
from curioplan.errors import ConfigError
from curioplan.options import nearest

FOLDER, SETTINGS = "$folder", "$settings"
STAGES: dict[str, Any] = {"explore": ExploreConfig, "train-model": TrainModelConfig, "reach": ReachConfig}
"""Stages with one kind of settings; ``learn`` has those of the learner, ``polo`` its own."""


def folder(path: str) -> dict[str, Any]:
    """Stands in a job's arguments for a folder of the study."""
    return {FOLDER: path}


def settings(
    stage: str, preset: str, changed: Mapping[str, Any] | None = None, algo: str = ""
) -> dict[str, Any]:
    """Stands in a job's arguments for the settings of a stage.

    Args:
        stage: ``explore``, ``polo``, ``train-model``, ``learn`` or ``reach``.
        preset: Where the settings start from.
        changed: Fields that differ from it, by dotted name.
        algo: The learner, for ``learn``.
    """
    learner = {"algo": algo} if algo else {}
    return {SETTINGS: stage, **learner, "preset": preset, "changed": dict(changed or {})}


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
    if given[SETTINGS] == "learn":
        from curioplan.values import learner_config

        start: StageConfig = learner_config(given["algo"], given["preset"])
    elif given[SETTINGS] == "polo":
        from curioplan.stages.polo import polo_config

        start = polo_config(given["preset"])
    else:
        start = preset(given["preset"], STAGES[given[SETTINGS]])
    for name, value in given["changed"].items():
        start = with_field(start, name, value)
    return start


def with_field(config: Any, name: str, value: Any, prefix: str = "") -> Any:
    """The settings with one field changed, given by its dotted name."""
    first, _, rest = name.partition(".")
    known = [entry.name for entry in fields(config) if entry.init]
    if first not in known:
        raise ConfigError(f"{type(config).__name__} has no setting {prefix}{first}{nearest(first, known)}")
    old = getattr(config, first)
    if is_dataclass(old) != bool(rest):
        problem = "is a group of settings" if is_dataclass(old) else "has no parts"
        raise ConfigError(f"{prefix}{first} of {type(config).__name__} {problem}: it cannot be set so.")
    if rest:
        return replace(config, **{first: with_field(old, rest, value, f"{prefix}{first}.")})
    return replace(config, **{first: _checked(prefix + first, get_type_hints(type(config))[first], value)})


def _checked(name: str, kind: Any, value: Any) -> Any:
    """A value of the type its field has; whole numbers pass for fractions."""
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ConfigError(f"{name} must be one of {', '.join(map(str, get_args(kind)))}, not {value}.")
        return value
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ConfigError(f"{name} must be of type {kind.__name__}, not {value!r}.")
    return value


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
