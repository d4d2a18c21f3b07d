"""A value learner of one's own, in this one file: regression on how long it took the data to get there.

    python examples/own_learner.py --run runs/maze

The run needs an exploration (``curioplan explore maze_umaze --out runs/maze --steps 20000``); without one, a
small exploration is made. A learner says which networks it has, what an update does, and what its values and
its policy are. Batches, several seeds at once, checkpoints, figures, planning and graphs come with the rest.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

import curioplan
from curioplan.config import LearnConfig
from curioplan.data import Batch
from curioplan.storage import read_json
from curioplan.values import Info, Learner, register
from curioplan.values.losses import regression_loss


@dataclass(frozen=True)
class HindsightConfig(LearnConfig):
    """Hindsight: values are what the data took, and the policy does what the data did."""

    algo: str = field(default="hindsight", init=False)
    imitation: float = 1.0
    """Weight of the policy's loss."""


@register
class Hindsight(Learner):
    """A value network V with a sigmoid, and a policy π, both regressed on what happened.

    Where the goal g lies k steps ahead of s in the same trajectory, V(s; g) is drawn towards γ^(k − 1) and
    π(s; g) towards the action taken; for goals from elsewhere V is drawn towards 0. Nothing is bootstrapped,
    so values are those of whoever made the data, and detours count: the baseline that others should beat.
    """

    Config = HindsightConfig
    config: HindsightConfig

    def set_up(self) -> None:
        """A policy and a value network, of states and goals."""
        situation = self.problem.observation_dim + self.problem.goal_dim
        self.build_actor(self.problem.action_dim)
        self.build("value", situation, 1, rate=self.config.critic_learning_rate)

    def update(self, batch: Batch) -> Info:
        """One step of both on relabelled transitions (learners, batch, ·)."""
        batch = self.problem.normalise(batch)
        losses, info = self.value_loss(batch)
        self.descend("value", losses)
        losses, more = self.policy_loss(batch)
        self.descend("actor", losses)
        self.updates += 1
        return info | more

    def value_loss(self, batch: Batch) -> tuple[Tensor, Info]:
        """How far V is from γ^(steps − 1), (learners,)."""
        assert batch.steps is not None
        ahead = batch.steps > 0
        targets = torch.where(ahead, self.problem.gamma ** (batch.steps - 1).float(), 0.0)
        logits = self.evaluate("value", (batch.observations, batch.goals))[:, 0, :, 0]
        loss = regression_loss(logits, targets, self.config.critic_loss).mean(1)
        return loss, {"value_loss": loss.detach()}

    def policy_loss(self, batch: Batch) -> tuple[Tensor, Info]:
        """How far π is from the action taken, where that led to the goal, (learners,)."""
        assert batch.steps is not None
        ahead = batch.steps > 0
        actions = self.evaluate("actor", (batch.observations, batch.goals))[:, 0].tanh()
        error = (actions - batch.actions).square().sum(-1) * ahead
        loss = error.sum(1) / ahead.sum(1).clamp(min=1)
        return self.config.imitation * loss, {"policy_loss": loss.detach()}

    def policy(self, states: Tensor, goals: Tensor) -> Tensor:
        """π(s; g) in [−1, 1]."""
        return self.infer("actor", (states, goals))[:, 0].tanh()

    def logits(self, states: Tensor, goals: Tensor) -> Tensor:
        """Log-odds of V(s; g)."""
        return self.infer("value", (states, goals))[:, 0, :, 0]


def main(words: Sequence[str] | None = None) -> None:
    """Train the learner on a run's exploration, and compare how it does with and without planning."""
    parser = argparse.ArgumentParser(description="A value learner of one's own.")
    parser.add_argument("--run", type=Path, default=Path("runs/maze"), help="a run with an exploration")
    parser.add_argument("--preset", default="cpu", choices=["paper", "cpu", "smoke"])
    parser.add_argument("--steps", type=int, default=5000, help="of exploration, if there is none yet")
    parser.add_argument("--updates", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=1, help="learners, trained together")
    given = parser.parse_args(words)

    if not (given.run / "explore" / "model.safetensors").exists():
        exploring = curioplan.preset(given.preset, curioplan.ExploreConfig, "maze_umaze")
        curioplan.explore("maze_umaze", given.run, replace(exploring, steps=given.steps))
    env = str(read_json(given.run / "run.json")["env"])
    learning = curioplan.learner_config("hindsight", given.preset, env)
    curioplan.train(given.run, "hindsight", replace(learning, updates=given.updates, seeds=given.seeds))
    reaching = curioplan.preset(given.preset, curioplan.ReachConfig, env)
    for controller in ("actor", "mbp+graph"):
        folder = curioplan.evaluate(given.run, controller, algo="hindsight", config=reaching)
        print(f"{controller}: {read_json(folder / 'result.json')['success']:.0%} of the goals reached")


if __name__ == "__main__":
    main()
