"""T-local optima along what bootstrapped value functions did: the job of the study ``optima``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from curioplan.analysis.figures_diagnostics import OUTCOMES
from curioplan.config import DiagnoseConfig
from curioplan.stages.diagnose import MEASURES, diagnose
from curioplan.storage import read_json

MEASURED = {
    f"{title}, {outcome}": (measure, outcome) for measure, title in MEASURES.items() for outcome in OUTCOMES
}
"""The figures of a result, each with its measure and the outcome of the trajectories."""


def measure_optima(run: Path, config: DiagnoseConfig) -> dict[str, Any]:
    """Diagnose value functions of one training, each along the trajectories that were planned with it.

    Args:
        run: The run folder.
        config: The settings, which name the training; evaluations of other values are left out.

    Returns:
        ``shares``: by measure and outcome, that of every trajectory; and their means, as in `MEASURED`, or
        ``None`` where there are no such trajectories.
    """
    seeds = {
        path.parent.name: int(settings["seed"])
        for path in sorted(run.glob("evaluations/*/config.json"))
        if (settings := read_json(path)["settings"])["values"] == config.values
    }
    chosen = replace(config, evaluations=",".join(seeds))
    found = read_json(diagnose(run, chosen, name=config.values) / "diagnosis.json")
    shares: dict[str, dict[str, list[float]]] = {
        measure: {outcome: [] for outcome in OUTCOMES} for measure in MEASURES
    }
    for episode in found["trajectories"]["episodes"]:
        own = found["seeds"].index(seeds[episode["evaluation"]])
        for measure, groups in shares.items():
            share = episode[measure][own]
            if share is not None:  # too short a trajectory has no share of steps
                groups[OUTCOMES[0] if episode["success"] else OUTCOMES[1]].append(share)
    return {
        "horizon": found["horizon"],
        "functions": len(found["seeds"]),
        "shares": shares,
        **{row: _mean(shares, *key) for row, key in MEASURED.items()},
    }


def _mean(shares: Mapping[str, Mapping[str, list[float]]], measure: str, outcome: str) -> float | None:
    some = shares[measure][outcome]
    return float(np.mean(some)) if some else None
