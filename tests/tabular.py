"""A goal-reaching problem small enough to solve exactly."""

from functools import cached_property

import torch

from curioplan.config import ModelConfig
from curioplan.data.relabel import Batch
from curioplan.models import GaussianEnsemble, Normaliser
from curioplan.values.problem import Problem


class Chain:
    """States in a row, seen as one-hot vectors; the goals are the states.

    A positive action moves one to the right, any other one to the left, up to the ends; with probability
    `slip` nothing moves. Reaching the goal is worth 1 and ends the episode. Being there is not reaching it:
    whoever starts at the goal has to leave and come back, except at an end, where pushing on arrives again.
    """

    def __init__(self, states=6, slip=0.0, gamma=0.9):
        self.states, self.slip, self.gamma = states, slip, gamma
        one_hots = torch.eye(states)
        normalisers = Normaliser(states), Normaliser(states)
        for normaliser in normalisers:
            normaliser.update(one_hots)
        self.problem = Problem(
            observation_dim=states,
            goal_dim=states,
            action_dim=1,
            gamma=gamma,
            middle=torch.zeros(1),
            half=torch.ones(1),
            states=normalisers[0],
            goals=normalisers[1],
            goal_indices=tuple(range(states)),
        )

    def moved(self, states, signs):
        """Where steps of +1 or −1 lead if nothing slips."""
        return (states + signs).clamp(0, self.states - 1)

    def batch(self, size, generators, actions="uniform", share=0.3):
        """Transitions (learners, size, ·) at uniformly random states with uniformly random goals.

        Args:
            size: Transitions per learner.
            generators: One per learner; its transitions depend on no other.
            actions: "uniform" in [−1, 1] with a fifth of them at its ends, where policies end up and values
                would else be a matter of extrapolation; or "mixed": of such a size, and of the optimal sign
                with probability `share` and the other sign else, so that imitation walks away from most
                goals. Signs are random where both are as good.
            share: See above.
        """
        signs = self.directions().long()
        parts = [self._transitions(size, signs, each, actions, share) for each in generators]
        at, to, goals, action = (torch.stack(part) for part in zip(*parts, strict=True))
        one_hots, rewards = torch.eye(self.states), (to == goals).float()
        return Batch(
            observations=one_hots[at],
            actions=action[..., None],
            next_observations=one_hots[to],
            goals=one_hots[goals],
            rewards=rewards,
            terminals=rewards.clone(),
            goal_rows=goals,
        )

    def _transitions(self, size, signs, generator, actions, share):
        at, goals = torch.randint(self.states, (2, size), generator=generator)
        action, chance, slip = torch.rand(3, size, generator=generator)
        action = ((2 * action - 1) * 1.25).clamp(-1, 1)
        if actions == "mixed":
            best = signs[at, goals]
            chosen = torch.where(chance < share, best, -best)
            action = torch.where(best == 0, action, action.abs() * chosen)
        elif actions != "uniform":
            raise ValueError(f"Actions are uniform or mixed, not {actions}.")
        to = self.moved(at, torch.where(action > 0, 1, -1))
        return at, torch.where(slip < self.slip, at, to), goals, action

    def pairs(self):
        """All states (states², states) with all goals (states², states), goals varying fastest."""
        one_hots = torch.eye(self.states)
        return one_hots.repeat_interleave(self.states, 0), one_hots.repeat(self.states, 1)

    @cached_property
    def q_values(self):
        """Q*(s, a; g) for a = −1 and +1, (2, states, goals): the fixed point of

        Q(s, a; g) = E[r + γ (1 − r) max_a' Q(s', a'; g)],   r = 1 where s' is g.
        """
        at, reached = torch.arange(self.states), torch.eye(self.states, dtype=torch.float64)
        to = torch.stack([self.moved(at, -1), self.moved(at, 1)])  # (2, states)
        value = torch.zeros(self.states, self.states, dtype=torch.float64)
        while True:
            outcome = reached + self.gamma * (1 - reached) * value  # of arriving at a state, (states, goals)
            q = self.slip * outcome + (1 - self.slip) * outcome[to]
            if (q.amax(0) - value).abs().max() < 1e-12:
                return q.float()
            value = q.amax(0)

    def values(self):
        """V*(s; g), (states, goals)."""
        return self.q_values.amax(0)

    def directions(self):
        """Signs of the optimal actions (states, goals), 0 where both are as good."""
        left, right = self.q_values
        return torch.where((right - left).abs() < 1e-6, torch.zeros(()), (right - left).sign())

    def model(self, members=5):
        """A dynamics model that is exact, but for a deviation of e⁻⁵ and actions between 0 and 0.001.

        A share `slip` of the members, all of them elites, says that nothing moves. With sharp S(x) = x if
        x > 0 else 0, which SiLU is far from zero, and the step p = S(1000 a) − S(1000 a − 1), the hidden
        units are S(s_i + p − 1), which is 1 in state i on the way right, and S(s_i − p), on the way left.
        """
        n, sharp, step = self.states, 20, 1000
        config = ModelConfig(members=members, elites=members, layers=2, units=2 * n)
        model = GaussianEnsemble(n, 1, config)  # normalisers that have seen nothing change nothing
        for parameter in model.network.parameters():
            parameter.data.zero_()
        first, second, last = (weight.data for weight in model.network.weights)
        one_hots, at = torch.eye(n), torch.arange(n)
        first[:, :n, :n] = sharp * one_hots
        first[:, n, n : n + 2] = sharp * step
        model.network.biases[0].data[..., n + 1] = -sharp
        second[:, :n, :n], second[:, :n, n:] = one_hots, one_hots
        second[:, n, :n], second[:, n + 1, :n] = 1, -1
        second[:, n, n:], second[:, n + 1, n:] = -1, 1
        model.network.biases[1].data[..., :n] = -sharp
        movers = slice(round(self.slip * members), None)
        last[movers, :n, :n] = (one_hots[self.moved(at, 1)] - one_hots) / sharp
        last[movers, n:, :n] = (one_hots[self.moved(at, -1)] - one_hots) / sharp
        model.network.biases[2].data[..., n:] = -30
        return model
