"""Controllers that know the answer, or nothing at all, to hold evaluation against."""

import numpy as np
import torch

from curioplan.envs.pinpad import zones
from curioplan.envs.waypoints import WaypointController

CENTRE = np.array([1.8, 1.8])
BUTTONS = {1: (0.8, 0.8), 2: (0.8, 2.8), 3: (2.8, 2.8), 4: (2.8, 0.8)}


class Scripted:
    """Acts for each episode on its own, and remembers which it was asked for."""

    def reset(self, goals, seeds):
        self.goals, self.seeds = goals.double().numpy(), list(seeds)
        self.asked = []

    def act(self, states, slots=None):
        slots = list(range(len(self.goals))) if slots is None else list(slots)
        self.asked.append(slots)
        actions = [self.one(slot, state) for slot, state in zip(slots, states.double().numpy(), strict=True)]
        return torch.from_numpy(np.array(actions, np.float32))


class Idle(Scripted):
    """Does nothing."""

    def __init__(self, task):
        self.nothing = np.zeros(task.action_dim)

    def one(self, slot, state):
        return self.nothing


class Restless(Scripted):
    """Does anything: actions drawn from the seed of each episode."""

    def __init__(self, task):
        self.task = task

    def reset(self, goals, seeds):
        super().reset(goals, seeds)
        self.rngs = [np.random.default_rng(seed) for seed in seeds]

    def one(self, slot, state):
        return self.rngs[slot].uniform(self.task.action_low, self.task.action_high)


class Guide(Scripted):
    """Knows the ways of a maze."""

    def __init__(self, task):
        self.guide = WaypointController(task.floor_plan.free)

    def one(self, slot, state):
        return self.guide.act(state, self.goals[slot])


class Presser(Scripted):
    """Presses the buttons of the pinpad that are missing, and crosses the room through its middle."""

    def one(self, slot, state):
        target = np.array(BUTTONS[self.next_button(state[4:], self.goals[slot])])
        here = int(zones(state[:2]))
        if here and np.abs(target - BUTTONS[here]).min() > 1 and np.abs(state[:2] - CENTRE).max() > 0.5:
            target = CENTRE
        return np.clip(4 * (target - state[:2]) - state[2:4], -1, 1)

    @staticmethod
    def next_button(history, goal):
        pressed, wanted = np.round(history).astype(int).tolist(), np.round(goal).astype(int).tolist()
        done = max(k for k in range(3) if pressed[3 - k :] == wanted[:k])
        return wanted[done]
