"""Value functions of worlds of which everything is known, as the graph takes them."""

import math

import torch


class GridValues:
    """A table of values of a `Grid`, with the interface of `Values`."""

    def __init__(self, grid, table=None):
        self.grid, self.gamma = grid, grid.gamma
        self.table = grid.optimal if table is None else table
        self.evaluated = 0

    def value(self, states, goals):
        return self.table[self.grid.number(states), self.grid.number(goals)]

    def distances(self, states, goals):
        self.evaluated += len(states) * len(goals)
        values = self.table[self.grid.number(states)[:, None], self.grid.number(goals)]
        return values.log() / math.log(self.gamma)

    def edges(self, states, goals):
        return self.distances(states, goals)

    def task_goals(self, goals):
        return goals


class MemoryValues:
    """Exact values of a corridor with a memory, whose goals see the memory alone.

    A state is (place, memory): a step leads to a neighbouring place; at the left end the memory becomes 0, at
    the right 1. A goal is a memory; as a target it is (memory, place), where place −1 means any.
    """

    gamma = 0.9

    def __init__(self, places):
        self.places = places
        self.states = torch.tensor([self._at(x, m) for x in range(places) for m in (0.0, 1.0)]).unique(dim=0)

    def distances(self, states, goals):
        goals = self.task_goals(goals).tolist()
        steps = [[self._search(tuple(state), *goal) for goal in goals] for state in states.tolist()]
        return (torch.tensor(steps) - 1).clamp(min=0)

    def edges(self, states, goals):
        return self.distances(states, goals)

    def task_goals(self, goals):
        return goals if goals.shape[1] == 2 else torch.cat([goals, torch.full_like(goals, -1)], 1)

    def whole_goals(self, states, achieved):
        return states.flip(1)

    def _at(self, place, memory):
        return place, {0: 0.0, self.places - 1: 1.0}.get(place, memory)

    def _search(self, state, memory, place):
        """The fewest steps to a goal, breadth first."""
        seen, frontier, steps = set(), {state}, 0
        while not any(m == memory and place in (-1, x) for x, m in frontier):
            seen |= frontier
            nexts = {(x + move, m) for x, m in frontier for move in (-1, 1)}
            frontier = {self._at(x, m) for x, m in nexts if 0 <= x < self.places} - seen
            steps += 1
            if not frontier:
                return math.inf
        return float(steps)
