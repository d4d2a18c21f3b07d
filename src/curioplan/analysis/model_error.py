"""How well a dynamics model predicts, one step and many steps ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from curioplan.analysis.style import house_style, new_figure, save_figure
from curioplan.data import TrajectoryStore
from curioplan.models import GaussianEnsemble


@dataclass(frozen=True)
class ModelError:
    """Open-loop prediction errors after some steps, as shares of the error of predicting no change.

    Attributes:
        steps: How many steps ahead.
        model: The model's share, in the median of the dimensions looked at.
        linear: That of the best linear predictor of the change of state.
    """

    steps: int
    model: float
    linear: float


def model_error(
    model: GaussianEnsemble,
    train: TrajectoryStore,
    test: TrajectoryStore,
    horizons: Sequence[int] = (1, 5, 15, 30),
    dims: Sequence[int] | None = None,
    stride: int = 5,
) -> list[ModelError]:
    """Errors on trajectories the model has not seen, given the actions taken there.

    Every ``stride``-th state of ``test`` that has ``max(horizons)`` successors is a start. The model
    advances by the mean of its elites' means; the linear predictor is fitted to ``train`` and iterated.
    Errors are squared, per dimension and relative to the squared change of state; of ``dims``, those that
    change at all, the median counts, since shares of what hardly moves are as large as one likes.
    """
    depth = max(horizons)
    rows = test.transition_rows
    last = test.last_rows[test.episode_of[rows]]
    starts = rows[rows + depth <= last][::stride]
    truth = test.observations
    linear = _fit_linear(train)
    imagined, straight = truth[starts], truth[starts]
    found = []
    for step in range(1, depth + 1):
        actions = test.actions[starts + step - 1]
        means, _ = model.predict(imagined, actions)
        imagined = means[model.elites].mean(0)
        straight = straight + torch.cat([straight, actions, actions.new_ones(len(starts), 1)], 1) @ linear
        if step in horizons:
            real = truth[starts + step]
            change = (real - truth[starts]).square().mean(0)
            chosen = torch.tensor(range(truth.shape[1]) if dims is None else dims, device=truth.device)
            chosen = chosen[change[chosen] > 1e-12]
            shares = [
                ((guess - real).square().mean(0) / change)[chosen].median() for guess in (imagined, straight)
            ]
            found.append(ModelError(step, float(shares[0]), float(shares[1])))
    return found


def model_error_figure(errors: Mapping[str, Sequence[ModelError]], path: Path) -> None:
    """Draw errors over steps, a panel for each set of dimensions, as PNG and PDF."""
    figure, panels = new_figure(columns=len(errors))
    with house_style():
        for axes, (what, found) in zip(panels, errors.items(), strict=True):
            steps = [error.steps for error in found]
            axes.plot(steps, [error.model for error in found], marker=".", label="model")
            axes.plot(steps, [error.linear for error in found], marker=".", label="best linear predictor")
            axes.axhline(1, color="#8C8C8C", linewidth=0.8, linestyle="--", label="no change")
            axes.set(title=f"squared error, {what}", xlabel="steps ahead", yscale="log")
        panels[0].legend()
    save_figure(figure, path)


def _fit_linear(store: TrajectoryStore) -> Tensor:
    """The least-squares map from (state, action, 1) to the change of state."""
    rows = store.transition_rows
    states, nexts = store.observations[rows], store.observations[rows + 1]
    inputs = torch.cat([states, store.actions[rows], states.new_ones(len(rows), 1)], 1).double()
    targets = (nexts - states).double()
    ridge = 1e-6 * len(rows) * torch.eye(inputs.shape[1], dtype=torch.float64, device=inputs.device)
    return torch.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ targets).float()
