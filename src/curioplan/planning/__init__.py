"""Trajectory optimisation: rollouts of the learned model, objectives, and iCEM over both."""

from curioplan.planning.foresight import Foresight
from curioplan.planning.icem import Planner, PlanReport
from curioplan.planning.objectives import (
    Disagreement,
    Distance,
    GoalReturn,
    GoalValue,
    Novelty,
    Objective,
    Sparse,
)
from curioplan.planning.rollout import Dynamics, ModelRollout, Rollout

__all__ = [
    "Disagreement",
    "Distance",
    "Dynamics",
    "Foresight",
    "GoalReturn",
    "GoalValue",
    "ModelRollout",
    "Novelty",
    "Objective",
    "PlanReport",
    "Planner",
    "Rollout",
    "Sparse",
]
