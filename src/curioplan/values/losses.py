"""Losses that several learners share."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn import functional

from curioplan.config import CriticLoss

ActorObjective = Literal["value", "log-odds"]


def regression_loss(logits: Tensor, targets: Tensor, kind: CriticLoss) -> Tensor:
    """How far values V = sigmoid(logits) are from targets in [0, 1], elementwise and in the shape of both.

    Squared is (V − y)²; cross-entropy is −y log V − (1 − y) log(1 − V). Their derivatives by the logits are
    2 (V − y) V (1 − V) and V − y, so in expectation both vanish at the mean of the targets, and the second
    does not become small where V is.
    """
    if kind == "squared":
        return (logits.sigmoid() - targets).square()
    return functional.binary_cross_entropy_with_logits(logits, targets.expand_as(logits), reduction="none")


def expectile_weights(differences: Tensor, expectile: float) -> Tensor:
    """|τ − 1(u < 0)| of differences u between targets and values: τ where these are too low, else 1 − τ."""
    return (expectile - (differences < 0).float()).abs()


def critics_loss(
    logits: Tensor, targets: Tensor, kind: CriticLoss, expectile: float = 0.5
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of critics: the mean over the batch of `regression_loss`, summed over the critics.

    Args:
        logits: Log-odds of the values (learners, critics, batch).
        targets: What they should be (learners, batch).
        kind: Which loss.
        expectile: Which expectile of the targets minimises it; 0.5 is the mean.

    Returns:
        Losses (learners,), and the mean absolute TD error and value.
    """
    targets = targets[:, None]
    values = logits.detach().sigmoid()
    info = {"td_error": (values - targets).abs_().mean((1, 2)), "q": values.mean((1, 2))}
    losses = regression_loss(logits, targets, kind)
    if expectile != 0.5:
        losses = 2 * expectile_weights(targets - values, expectile) * losses
    return losses.mean(2).sum(1), info


def climbing_loss(logits: Tensor, objective: ActorObjective) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of an actor whose actions have these log-odds (learners, batch): minus what it climbs."""
    values = logits.sigmoid()
    climbed = values if objective == "value" else logits
    return -climbed.mean(1), {"value": values.detach().mean(1)}
