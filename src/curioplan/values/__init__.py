"""Value learning: one learner per file, all with the interface of `Learner`."""

from curioplan.values.learner import Info, Learner
from curioplan.values.problem import Problem
from curioplan.values.registry import LEARNERS, learner_class, learner_config, register
from curioplan.values.trained import Distances, Values, save_values

__all__ = [
    "LEARNERS",
    "Distances",
    "Info",
    "Learner",
    "Problem",
    "Values",
    "learner_class",
    "learner_config",
    "register",
    "save_values",
]
