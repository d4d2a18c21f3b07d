"""What all pages of a playground share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from curioplan.config import ReachConfig
from curioplan.envs import make_task
from curioplan.errors import RunError
from curioplan.runs import read_run
from curioplan.stages.control import Parts
from curioplan.stages.train_model import find_model

CONTROLLERS = ("mbp+graph", "mbp", "actor")


@dataclass(frozen=True)
class Playground:
    """What all pages share: the parts of a run's agents, and the controllers that can be made of them."""

    parts: Parts
    controllers: tuple[str, ...]

    @classmethod
    def open(
        cls,
        run: str | Path,
        config: ReachConfig,
        *,
        algo: str = "td3",
        values: str = "",
        model: str = "",
        device: str = "cpu",
    ) -> Playground:
        """The playground of a trained run; without a model of the world its policy alone can be watched.

        Args:
            run: The run folder.
            config: How goals are reached.
            algo: The learner of the value function.
            values: The name of its training, if it was given one.
            model: The name of the dynamics model; by default exploration's.
            device: Where to compute.
        """
        run = Path(run)
        task = make_task(str(read_run(run)["env"]))
        parts = Parts(run, task, config, algo, 0, values, model, device)
        parts.values()
        try:
            find_model(run, model)
        except RunError:
            if model:
                raise
            return cls(parts, ("actor",))
        return cls(parts, CONTROLLERS)
