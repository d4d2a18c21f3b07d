"""A point on a grid with walls: a world of which everything is known."""

from functools import cached_property

import torch
from hypothesis import assume
from hypothesis import strategies as st

from curioplan.planning import Rollout

MOVES = torch.tensor([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]])  # stay, up, down, left, right
ARROWS = " ^v<>"  # the cells that can be left by one of these moves only
REST = 0.25  # actions whose components are all this small move nothing


class Grid:
    """A map as a planner's `Dynamics`, with exact distances and values between all its cells.

    A state is the (row, column) of a cell, and so is a goal. Of an action in [−1, 1]² the larger component
    decides: the point moves one cell along that axis, if it is beyond `REST` and no wall is in the way, and
    else stays. So uniformly random actions take each of the four directions with probability
    (1 − REST²) / 4, and being at the goal one can stay there.

    Tables of values are (cells, goals), both by the numbers of cells, row by row through the map.

    Args:
        plan: Rows of characters: "#" is a wall, ^ v < > cells that can be left in this direction only, and
            all else is free; letters name their cell, see `at`. Beyond the map there is wall.
        gamma: Discount factor.
    """

    low, high = torch.tensor([-1.0, -1.0]), torch.tensor([1.0, 1.0])

    def __init__(self, plan, gamma=0.95):
        self.rows, self.gamma = plan.split(), gamma
        free = torch.tensor([[mark != "#" for mark in row] for row in self.rows])
        self.cells = free.nonzero()  # (cells, 2)
        self._numbers = torch.full((free.shape[0] + 2, free.shape[1] + 2), -1)  # with a rim of wall
        self._numbers[1:-1, 1:-1][free] = torch.arange(len(self.cells))

    def __len__(self):
        return len(self.cells)

    @property
    def states(self):
        """The states of all cells (cells, 2)."""
        return self.cells.float()

    def at(self, name):
        """The number of the cell with this mark."""
        (found,) = [
            number for number, (row, column) in enumerate(self.cells) if self.rows[row][column] == name
        ]
        return found

    def number(self, states):
        """The numbers of the cells of states (..., 2)."""
        row, column = (states.round().long() + 1).unbind(-1)
        return self._numbers[row, column]

    @cached_property
    def successors(self):
        """Where each of the moves leads from each cell (5, cells)."""
        to = self.number(self.cells + MOVES.unsqueeze(1))
        to = torch.where(to < 0, torch.arange(len(self)), to)
        for number, (row, column) in enumerate(self.cells):
            if (arrow := ARROWS.find(self.rows[row][column])) > 0:
                to[torch.arange(len(MOVES)) != arrow, number] = number
        return to

    # The world as a planner sees it

    def step(self, states, actions):
        """The states (..., 2) after actions (..., 2)."""
        size, axis = actions.abs().max(-1)
        sign = actions.gather(-1, axis.unsqueeze(-1)).squeeze(-1) > 0
        move = torch.where(size > REST, 1 + 2 * axis + sign, 0)
        return self.states[self.successors[move, self.number(states)]]

    def rollout(self, states, actions, generators, *, disagreement):
        """See `Dynamics`: one particle, since nothing is left to chance."""
        path = [states.unsqueeze(1).expand(-1, actions.shape[1], -1)]
        for action in actions.unbind(2):
            path.append(self.step(path[-1], action))
        nothing = torch.zeros(actions.shape[:3])
        return Rollout(torch.stack(path, 2).unsqueeze(2), nothing if disagreement else None, nothing.sum(2))

    # What is true of it

    @cached_property
    def distances(self):
        """Fewest steps from cells to cells (cells, cells), breadth first; infinite where no way leads."""
        step = torch.zeros(len(self), len(self))
        step[torch.arange(len(self)), self.successors] = 1
        distances = torch.full_like(step, torch.inf)
        reached, steps = torch.eye(len(self)), 0
        while (new := (reached > 0) & distances.isinf()).any():
            distances[new] = steps
            reached, steps = new.float() @ step, steps + 1
        return distances

    @cached_property
    def optimal(self):
        """The table of V*(s; g) = γ^(d − 1), and 1 at the goal, where one can stay; 0 where no way leads."""
        return self.gamma ** (self.distances - 1).clamp(min=0)

    def value(self, table=None):
        """A table (V* if none), or M of them (M, cells, goals), as a function of states and goals (N, 2)."""
        table = self.optimal if table is None else table
        return lambda states, goals: table[..., self.number(states), self.number(goals)]

    def path(self, start, goal):
        """The numbers of the cells along a shortest way."""
        if self.distances[start, goal].isinf():
            raise ValueError(f"No way leads from cell {start} to cell {goal}.")
        way = [start]
        while way[-1] != goal:
            nexts = self.successors[:, way[-1]]
            way.append(int(nexts[self.distances[nexts, goal].argmin()]))
        return torch.tensor(way)

    def depths(self, table, goal):
        """The depth of the T-local optimum at every cell (cells,): 0 where there is none, or infinite."""
        values = table[:, goal]
        better = values > values.unsqueeze(1)
        rivals = torch.where(self.distances == 1, values, 0.0).amax(1)
        escape = torch.where(better, self.distances, torch.inf).amin(1)
        return torch.where((values > rivals) & better.any(1), escape - 1, 0.0)

    def planted(self, table, goal, cell, depth):
        """A table with one value raised so that its cell is a T-local optimum of this depth.

        Halfway between the best value within `depth` steps and the best one a step further: so it takes
        depth + 1 steps to something better.
        """
        steps, values = self.distances[cell], table[:, goal]
        near = values[steps <= depth].amax()
        far = values[steps <= depth + 1].amax()
        level = (near + far) / 2
        if not near < level < far:
            raise ValueError(f"Nothing better is exactly {depth + 1} steps away from cell {cell}.")
        table = table.clone()
        table[cell, goal] = level
        return table


@st.composite
def plans(draw, most=7):
    """Random maps, with walls and one-way cells, of two cells or more."""
    rows, columns = draw(st.integers(1, most)), draw(st.integers(1, most))
    mark = st.sampled_from("....##^v<>")
    marks = "".join(draw(st.lists(mark, min_size=rows * columns, max_size=rows * columns)))
    assume(len(marks) - marks.count("#") > 1)
    return "\n".join(marks[start : start + columns] for start in range(0, len(marks), columns))
