"""Learners by name, and their settings in every preset."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import import_module
from typing import Any, TypeVar

from curioplan.config import LearnConfig
from curioplan.errors import ConfigError
from curioplan.presets import PresetName, preset, short_name
from curioplan.values.learner import Learner

LEARNERS = {
    "td3": "TD3",
    "ddpg": "DDPG",
    "sac": "SAC",
    "crr": "CRR",
    "mbpo": "MBPO",
    "mopo": "MOPO",
    "iql": "IQL",
    "lapo": "LAPO",
    "wgcsl": "WGCSL",
}
"""Learners from data alone: names on the command line, each with its class in the module of that name."""
ONLINE = {"polo": "POLO"}
"""Learners that explore by what they learn, with a command of their own."""
_REGISTERED: dict[str, type[Learner]] = {}

Kind = TypeVar("Kind", bound=type[Learner])


def register(learner: Kind) -> Kind:
    """Make a learner of one's own known by the ``algo`` of its settings, for this process.

    Used as a decorator; whoever loads what it has learned must have imported its module before.
    """
    algo = learner.Config().algo
    if not re.fullmatch(r"\w+", algo) or algo in LEARNERS | ONLINE:
        raise ConfigError(f"A learner needs a name of its own, of letters, digits and underscores: {algo!r}.")
    _REGISTERED[algo] = learner
    return learner


def learner_class(algo: str) -> type[Learner]:
    """The class of a learner."""
    known = LEARNERS | ONLINE
    if algo in _REGISTERED:
        return _REGISTERED[algo]
    if algo not in known:
        raise ConfigError(f"There is no learner {algo}; there are {', '.join(LEARNERS)}.")
    found: type[Learner] = getattr(import_module(f"curioplan.values.{algo}"), known[algo])
    return found


def learner_config(algo: str = "td3", name: PresetName = "cpu", env: str = "") -> LearnConfig:
    """A learner's settings in a preset.

    These are its own defaults, with what the preset changes for all learners, then for this one, and with the
    exceptions for an environment last: of all learners, then of this one.

    Args:
        algo: The learner.
        name: The preset.
        env: The environment, for which the preset may make exceptions.
    """
    config_class = learner_class(algo).Config
    usual = preset(name, LearnConfig)
    changed = _changes(LearnConfig(), usual) | config_class.presets.get(name, {})
    changed |= _changes(usual, preset(name, LearnConfig, env))
    return config_class(**changed | config_class.exceptions.get((name, short_name(env)), {}))


def _changes(before: LearnConfig, after: LearnConfig) -> dict[str, Any]:
    """The settings in which two differ, as the second has them."""
    names = [entry.name for entry in fields(LearnConfig) if entry.init]
    return {name: getattr(after, name) for name in names if getattr(after, name) != getattr(before, name)}
