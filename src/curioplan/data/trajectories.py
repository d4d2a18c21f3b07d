"""Whole trajectories in contiguous tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from curioplan.errors import DataError


class Episode(NamedTuple):
    """One trajectory as read-only arrays."""

    observations: NDArray[np.float32]  # (steps + 1, observation)
    actions: NDArray[np.float32]  # (steps, action)
    achieved_goals: NDArray[np.float32]  # (steps + 1, goal)


class Transitions(NamedTuple):
    """A batch of single steps; the observations are two strided views of one tensor."""

    observations: Tensor  # (batch, observation)
    actions: Tensor  # (batch, action)
    next_observations: Tensor  # (batch, observation)


class TrajectoryStore:
    """Trajectories, one row per state, in tensors that double in size when full.

    An episode of T transitions takes T + 1 consecutive rows; the action of its final state is zero and never
    used. An episode is over when the next one begins. A begun episode counts from its first step on: until
    then its first state is kept aside, and forgotten if another episode begins.

    The tensors that properties return are the filled parts of the buffers. They are meant for reading, and
    no longer follow the store once its buffers have grown.

    Args:
        observation_dim: Dimension of an observation.
        goal_dim: Dimension of an achieved goal.
        action_dim: Dimension of an action.
        device: Where the tensors live.
        capacity: Rows to allocate at first.
    """

    def __init__(
        self,
        observation_dim: int,
        goal_dim: int,
        action_dim: int,
        device: str | torch.device = "cpu",
        capacity: int = 1024,
    ) -> None:
        self.observation_dim = observation_dim
        self.goal_dim = goal_dim
        self.action_dim = action_dim
        self.device = torch.empty(0, device=device).device  # with its index: "cuda" becomes "cuda:0"
        self._states = 0
        self._transitions = 0
        self._episodes = 0
        self._begun = False  # a first state waits in row `_states` for its first step
        self._buffers: dict[str, Tensor] = {}
        self._allocate(max(capacity, 2))

    def _allocate(self, capacity: int) -> None:
        """Makes room for ``capacity`` rows and keeps what there is."""
        row = {
            "observations": (self.observation_dim,),
            "achieved_goals": (self.goal_dim,),
            "actions": (self.action_dim,),
            "episode_of": (),
            "transition_rows": (),
            "last_rows": (),  # one per episode, of which there are fewer than rows
        }
        buffers = {}
        for name, shape in row.items():
            dtype = torch.float32 if shape else torch.int64
            buffers[name] = torch.zeros((capacity, *shape), dtype=dtype, device=self.device)
            if name in self._buffers:
                old = self._buffers[name]
                buffers[name][: len(old)] = old
        self._buffers, self._capacity = buffers, capacity
        # Single steps go through NumPy views of the same memory: many times cheaper than through torch.
        on_cpu = self.device.type == "cpu"
        self._views = {name: buffer.numpy() for name, buffer in self._buffers.items()} if on_cpu else None

    def _reserve(self, rows: int) -> None:
        """Grows the buffers, at least to twice their size, if they hold fewer than ``rows``."""
        if rows > self._capacity:
            self._allocate(max(rows, 2 * self._capacity))

    def begin(self, observation: ArrayLike, achieved_goal: ArrayLike) -> None:
        """Starts an episode in a state."""
        state = _vector(observation, self.observation_dim, "observation")
        goal = _vector(achieved_goal, self.goal_dim, "achieved goal")
        if self._views is None:
            self._append_one(state, goal, np.zeros(self.action_dim, np.float32), first=True)
            return
        row = self._states
        if row >= self._capacity:
            self._reserve(row + 1)
        views = self._views
        views["observations"][row] = state
        views["achieved_goals"][row] = goal
        views["episode_of"][row] = self._episodes
        self._begun = True

    def step(self, action: ArrayLike, observation: ArrayLike, achieved_goal: ArrayLike) -> None:
        """Adds the action taken in the latest state, and the state it led to."""
        taken = _vector(action, self.action_dim, "action")
        state = _vector(observation, self.observation_dim, "observation")
        goal = _vector(achieved_goal, self.goal_dim, "achieved goal")
        if self._views is None:
            self._append_one(state, goal, taken, first=False)
            return
        row = self._states
        if self._begun:
            row += 1
        elif row == 0:
            raise DataError("A step needs an episode: begin one first.")
        if row >= self._capacity:
            self._reserve(row + 1)
        if self._begun:
            self._begun = False
            self._episodes += 1
        views, episode = self._views, self._episodes - 1
        views["actions"][row - 1] = taken
        views["observations"][row] = state
        views["achieved_goals"][row] = goal
        views["episode_of"][row] = episode
        views["last_rows"][episode] = row
        views["transition_rows"][self._transitions] = row - 1
        self._transitions += 1
        self._states = row + 1

    def add_episode(self, observations: ArrayLike, actions: ArrayLike, achieved_goals: ArrayLike) -> None:
        """Adds T + 1 observations and achieved goals, and the T actions between them, as one episode."""
        taken = _matrix(actions, self.action_dim, "actions")
        states = _matrix(observations, self.observation_dim, "observations")
        goals = _matrix(achieved_goals, self.goal_dim, "achieved goals")
        if not len(states) == len(goals) == len(taken) + 1:
            raise DataError(
                f"An episode of {len(taken)} actions needs {len(taken) + 1} observations and achieved goals, "
                f"not {len(states)} and {len(goals)}."
            )
        self.append_rows(
            {
                "observations": states,
                "achieved_goals": goals,
                "actions": torch.cat([taken.new_zeros(1, self.action_dim), taken]),
                "first": torch.arange(len(states)) == 0,
            }
        )

    def extend(self, other: TrajectoryStore) -> None:
        """Adds all episodes of another store."""
        self.append_rows(other.rows(0, other.states))

    def rows(self, start: int = 0, stop: int | None = None) -> dict[str, Tensor]:
        """A copy of the states ``start`` to ``stop``, as :meth:`append_rows` takes them.

        A row never changes once it is there, since its action is the one that *led* to its state. So a log
        whose every entry starts at the ``states`` of the entry before restores the store, with its open
        episode. The first state of an episode without a step comes last, unless ``stop`` leaves it out.
        """
        stop = self._states + self._begun if stop is None else stop
        before = slice(max(start - 1, 0), max(stop - 1, 0))
        actions, episode_of = self._buffers["actions"], self._buffers["episode_of"]
        led = actions[before].clone()  # the action of an episode's final state is zero
        first = episode_of[max(start, 1) : max(stop, 1)] != episode_of[before]
        if start == 0 and stop > 0:
            led = torch.cat([actions.new_zeros(1, self.action_dim), led])
            first = torch.cat([first.new_ones(1), first])
        return {
            "observations": self._buffers["observations"][start:stop].clone(),
            "achieved_goals": self._buffers["achieved_goals"][start:stop].clone(),
            "actions": led,
            "first": first,
        }

    def append_rows(self, rows: Mapping[str, Tensor]) -> None:
        """Adds states in order, with the same result as beginning and stepping through them.

        Args:
            rows: ``observations`` and ``achieved_goals`` of the states, the ``actions`` that led to them, and
                booleans ``first`` that mark where episodes begin. A leading state that is not marked
                continues the open episode.
        """
        new = self._checked(rows)
        first = new["first"]
        if len(first) == 0:
            return
        if bool(first[0]):
            self._begun = False
        elif self._states == 0 and not self._begun:
            raise DataError("A step needs an episode: begin one first.")
        alone = first & torch.cat([first[1:], first.new_zeros(1)])  # begun, but another begins right after
        if bool(alone.any()):
            new = {name: value[~alone] for name, value in new.items()}
            first = new["first"]
        count, base = len(first), self._states + self._begun
        episode = first.cumsum(0) + (self._episodes - 1 + self._begun)
        stepped = (~first).nonzero().squeeze(1)
        ends = torch.cat([first[1:], first.new_ones(1)]).nonzero().squeeze(1)
        waiting = bool(first[-1])
        self._reserve(base + count)
        buffers = self._buffers
        buffers["observations"][base : base + count] = new["observations"]
        buffers["achieved_goals"][base : base + count] = new["achieved_goals"]
        buffers["actions"][base - 1 + stepped] = new["actions"][stepped]
        buffers["episode_of"][base : base + count] = episode
        buffers["last_rows"][episode[ends]] = base + ends
        transitions = self._transitions + len(stepped)
        buffers["transition_rows"][self._transitions : transitions] = base - 1 + stepped
        self._transitions = transitions
        self._states = base + count - waiting
        self._episodes = int(episode[-1]) + 1 - waiting
        self._begun = waiting

    def _checked(self, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The fields of ``rows`` on this device, once their shapes agree with each other and the store."""
        widths = {
            "observations": (self.observation_dim,),
            "achieved_goals": (self.goal_dim,),
            "actions": (self.action_dim,),
            "first": (),
        }
        if missing := widths.keys() - rows.keys():
            raise DataError(f"Rows lack {', '.join(sorted(missing))}.")
        for name, width in widths.items():
            expected = (len(rows["first"]), *width)
            if tuple(rows[name].shape) != expected:
                raise DataError(f"Rows of {name} have shape {tuple(rows[name].shape)} instead of {expected}.")
        return {
            name: rows[name].to(self.device, torch.bool if name == "first" else torch.float32)
            for name in widths
        }

    def _append_one(
        self, state: NDArray[Any], goal: NDArray[Any], action: NDArray[Any], *, first: bool
    ) -> None:
        """Adds a single state where the memory cannot be written through NumPy."""
        row = {"observations": state, "achieved_goals": goal, "actions": action}
        self.append_rows(
            {"first": torch.tensor([first])} | {name: torch.from_numpy(row[name])[None] for name in row}
        )

    @property
    def states(self) -> int:
        """How many states are stored."""
        return self._states

    @property
    def transitions(self) -> int:
        """How many transitions are stored."""
        return self._transitions

    @property
    def episodes(self) -> int:
        """How many episodes of at least one transition are stored."""
        return self._episodes

    @property
    def observations(self) -> Tensor:
        """The observation of every state, ``(states, observation)``."""
        return self._buffers["observations"][: self._states]

    @property
    def achieved_goals(self) -> Tensor:
        """The goal that every state achieves, ``(states, goal)``."""
        return self._buffers["achieved_goals"][: self._states]

    @property
    def actions(self) -> Tensor:
        """The action taken in every state, ``(states, action)``; zero in final states."""
        return self._buffers["actions"][: self._states]

    @property
    def episode_of(self) -> Tensor:
        """The number of the episode of every state, ``(states,)``."""
        return self._buffers["episode_of"][: self._states]

    @property
    def transition_rows(self) -> Tensor:
        """The row of the state that every transition starts from, ``(transitions,)``."""
        return self._buffers["transition_rows"][: self._transitions]

    @property
    def last_rows(self) -> Tensor:
        """The row of the final state of every episode, ``(episodes,)``."""
        return self._buffers["last_rows"][: self._episodes]

    @property
    def first_rows(self) -> Tensor:
        """The row of the first state of every episode, ``(episodes,)``."""
        last = self.last_rows
        return torch.cat([last.new_zeros(min(1, len(last))), last[:-1] + 1])

    @property
    def episode_lengths(self) -> Tensor:
        """The transitions of every episode, ``(episodes,)``."""
        return self.last_rows - self.first_rows

    def __iter__(self) -> Iterator[Episode]:
        """The episodes in order, as read-only views (copies if the store is not on the CPU)."""
        fields = [x.cpu().numpy() for x in (self.observations, self.actions, self.achieved_goals)]
        for field in fields:
            field.flags.writeable = False
        observations, actions, goals = fields
        for first, last in zip(self.first_rows.tolist(), self.last_rows.tolist(), strict=True):
            rows = slice(first, last + 1)
            yield Episode(observations[rows], actions[first:last], goals[rows])

    def to(self, device: str | torch.device) -> TrajectoryStore:
        """This store if it is on ``device``, else a copy there."""
        if torch.empty(0, device=device).device == self.device:
            return self
        copy = TrajectoryStore(self.observation_dim, self.goal_dim, self.action_dim, device, self._capacity)
        copy.append_rows(self.rows())
        return copy

    def sample_rows(self, batch_size: int, generator: torch.Generator) -> Tensor:
        """The rows from which uniformly random transitions start, with replacement, ``(batch,)``.

        A generator of another device draws there, and what it has drawn is moved to where the store is.
        """
        if not self._transitions:
            raise DataError("There are no transitions to sample from.")
        drawn = torch.randint(self._transitions, (batch_size,), generator=generator, device=generator.device)
        return self._buffers["transition_rows"].index_select(0, drawn.to(self.device))

    def sample(self, batch_size: int, generator: torch.Generator) -> Transitions:
        """Uniformly random transitions, with replacement."""
        return self.transitions_at(self.sample_rows(batch_size, generator))

    def transitions_at(self, rows: Tensor) -> Transitions:
        """The transitions that start from ``rows``, which must not be final states."""
        observations = self._buffers["observations"]
        dim = self.observation_dim
        # A state and its successor are neighbours in memory: one gather of both costs half of two.
        pairs = observations.as_strided((self._capacity - 1, 2, dim), (dim, dim, 1)).index_select(0, rows)
        return Transitions(pairs[:, 0], self._buffers["actions"].index_select(0, rows), pairs[:, 1])


def _vector(value: ArrayLike, dim: int, name: str) -> NDArray[np.float32]:
    """``value`` as float32, once its shape is right: assignment would broadcast a wrong one silently."""
    array = np.asarray(value, np.float32)
    if array.shape != (dim,):
        raise DataError(f"The {name} has shape {array.shape} instead of {(dim,)}.")
    return array


def _matrix(value: ArrayLike, dim: int, name: str) -> Tensor:
    """``value`` as a float32 tensor of rows of ``dim``."""
    array = torch.as_tensor(np.array(value, np.float32))
    if array.ndim != 2 or array.shape[1] != dim:
        raise DataError(f"The {name} have shape {tuple(array.shape)} instead of (steps, {dim}).")
    return array
