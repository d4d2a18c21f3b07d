"""Settings of every stage, as frozen dataclasses, whose defaults are the paper's."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_type_hints

from curioplan.errors import ConfigError

CriticLoss = Literal["squared", "cross-entropy"]
Valuing = Literal["particles", "mean"]
Evaluate = Literal["exact", "quick", "checked"]
Preselect = Literal["nearest", "promising"]
ExplorerName = Literal["disagreement", "novelty", "random", "value"]


def _require(config: Any, rule: str, *names: str) -> None:
    """Refuse values of the named fields that break a rule."""
    holds = {
        "at least 1": lambda value: value >= 1,
        "at least 0": lambda value: value >= 0,
        "above 0": lambda value: value > 0,
        "between 0 and 1": lambda value: 0 <= value <= 1,
        "above 0 and below 1": lambda value: 0 < value < 1,
        "above 0 and at most 1": lambda value: 0 < value <= 1,
    }[rule]
    for name in names:
        value = getattr(config, name)
        if not (math.isfinite(value) and holds(value)):
            raise ConfigError(f"{name} must be {rule}, not {value}.")


def _require_device(name: str) -> None:
    """Refuse what names no device; whether this machine has it, a stage finds out when it begins."""
    if not re.fullmatch(r"cpu|auto|cuda(:(0|[1-9]\d*))?", name):
        raise ConfigError(f"device must be cpu, cuda, one of several as cuda:1, or auto, not {name!r}.")


@dataclass(frozen=True)
class ModelConfig:
    """The dynamics ensemble."""

    members: int = 7
    """Networks in the ensemble."""
    elites: int = 5
    """Members, best by held-out likelihood, that planning uses."""
    layers: int = 4
    """Hidden layers of each member."""
    units: int = 200
    """Units per hidden layer."""
    learning_rate: float = 2.8e-4
    """Step size of Adam."""
    weight_decay: float = 1e-4
    """Weight decay of Adam."""
    batch_size: int = 512
    """Transitions per update and member."""
    beta: float = 0.0
    """Weight each likelihood term by its variance to this power (β-NLL); 0 is the plain likelihood."""
    imagined: int = 0
    """Up to how many steps before a transition training begins: its state is then what the member itself
    imagines from there, so that it learns the way back from its own errors, as where something jumps. 0
    trains on the states of the data alone."""
    log_variance_min: float = -10.0
    """Soft lower bound of predicted log-variances."""
    log_variance_max: float = 0.5
    """Soft upper bound of predicted log-variances."""
    held_out: float = 0.1
    """Share of transitions kept from training, to rank members and to stop early."""
    patience: int = 5
    """Epochs without better held-out likelihood after which training stops early."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        _require(self, "at least 1", "members", "elites", "layers", "units", "batch_size", "patience")
        _require(self, "above 0", "learning_rate")
        _require(self, "at least 0", "weight_decay", "beta", "imagined")
        _require(self, "above 0 and below 1", "held_out")
        if self.elites > self.members:
            raise ConfigError(f"elites ({self.elites}) must not exceed members ({self.members}).")
        if self.log_variance_min >= self.log_variance_max:
            raise ConfigError("log_variance_min must be below log_variance_max.")


@dataclass(frozen=True)
class PlannerConfig:
    """Trajectory optimisation with the learned model."""

    method: Literal["icem", "cem", "mppi"] = "icem"
    """Optimiser: iCEM, plain CEM (white noise, no memory), or MPPI (a mean weighted by worth, no elites)."""
    iterations: int = 3
    """Refits of the sampling distribution per plan."""
    population: int = 400
    """Action sequences sampled per iteration."""
    elite_ratio: float = 0.01
    """Share of the population the distribution is refitted to."""
    momentum: float = 0.1
    """Share of the old mean and deviation kept at each refit."""
    noise_exponent: float = 3.0
    """Exponent of the power spectrum of the sampled noise; 0 is white."""
    keep_fraction: float = 0.3
    """Share of elites kept across iterations and, shifted, across steps."""
    temperature: float = 0.3
    """How far below the best a sequence may be and still count with MPPI, in standard deviations of the
    population's worth."""
    population_decay: float = 1.0
    """Factor by which the population shrinks per iteration; 1 keeps it."""
    initial_std: float = 0.25
    """Initial standard deviation, as a share of the action range."""
    execute: Literal["mean", "best"] = "mean"
    """What is executed: the refitted mean, or the best sampled sequence."""
    replan_every: int = 1
    """Environment steps between two plans."""
    warm_start: bool = True
    """Whether a plan starts from the last one, shifted in time."""
    propagation: Literal["ts1", "mean", "shared"] = "ts1"
    """How imagined states advance: sampled particles that change members (ts1), each elite with a mean of
    its own (mean), or one state on which all members are evaluated (shared)."""
    particles: int = 20
    """Particles per action sequence with ts1."""
    variance_limit: float = 100.0
    """Sequences whose particle variance, summed over the horizon, exceeds this are discarded."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        _require(self, "at least 1", "iterations", "population", "replan_every", "particles")
        _require(self, "above 0 and at most 1", "elite_ratio", "population_decay")
        _require(self, "between 0 and 1", "momentum", "keep_fraction")
        _require(self, "above 0", "initial_std", "temperature", "variance_limit")
        _require(self, "at least 0", "noise_exponent")


@dataclass(frozen=True)
class ExploreConfig:
    """Curious exploration: act so that the ensemble disagrees, and learn from what happens."""

    steps: int = 200_000
    """Environment steps in all."""
    seed: int = 0
    """Seed of everything random."""
    explorer: ExplorerName = "disagreement"
    """What is sought: disagreement of the ensemble, novelty to a random network (RND), nothing (random), or,
    with curioplan polo, states of uncertain value."""
    warmup_steps: int = 3000
    """Uniformly random steps before the first plan."""
    horizon: int = 0
    """Planning horizon; 0 takes the task's."""
    foresight: float = 0.0
    """Discount factor per step of the disagreement that lies beyond a plan's horizon: its value is learned
    along, from the data, and counts where a plan ends. 0 plans for the horizon alone."""
    whims: float = 0.0
    """About this share of the steps is spent on random actions, each held for as long as a plan looks ahead,
    begun mostly where the agent has seldom been: what the model is wrongly sure of, chance alone finds."""
    epochs: int = 12
    """Epochs of all data that the model is trained for before each episode."""
    updates_per_step: float = 0.0
    """Model updates per environment step, whatever the amount of data; 0 trains by epochs instead."""
    settle: int = 0
    """Updates at the end by which the model that is left behind comes to rest: their step size falls to zero.
    0 leaves it as it was while exploring."""
    learn_every: int = 10
    """Environment steps between bouts of updates."""
    checkpoint_every: int = 5000
    """Environment steps between checkpoints, which fall on the ends of episodes."""
    threads: int = 0
    """CPU threads to compute with; 0 takes all. Small networks are fastest with one."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, one of several as cuda:1, or auto, which is CUDA where there is one."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The dynamics ensemble."""
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    """The trajectory optimiser."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        _require_device(self.device)
        _require(self, "at least 1", "steps", "warmup_steps", "learn_every", "checkpoint_every")
        _require(self, "at least 0", "seed", "horizon", "epochs", "updates_per_step", "settle", "threads")
        _require(self, "between 0 and 1", "whims")
        if not 0 <= self.foresight < 1:
            raise ConfigError(f"foresight must be at least 0 and below 1, not {self.foresight}.")
        if self.epochs == 0 and self.updates_per_step == 0:
            raise ConfigError("The model would never be trained: epochs or updates_per_step must be above 0.")


@dataclass(frozen=True)
class TrainModelConfig:
    """Offline training of the dynamics ensemble, on whatever data."""

    seed: int = 0
    """Seed of everything random."""
    data: str = ""
    """What to train on: empty for the run's exploration; else datasets or runs, separated by commas, each
    with its share after an equals sign if they are to be mixed (own=0.8,expert.npz=0.2)."""
    size: int = 0
    """Transitions to take of the data; 0 takes all, or as many as the shares allow."""
    held_out_episodes: float = 0.05
    """Share of episodes that errors are measured on instead of training; of fewer than 10 none."""
    updates: int = 100_000
    """Gradient steps."""
    cooldown: float = 0.0
    """Last share of the updates, over which the step size falls linearly to zero."""
    checkpoint_every: int = 2000
    """Updates between checkpoints."""
    threads: int = 0
    """CPU threads to compute with; 0 takes all. Small networks are fastest with one."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, one of several as cuda:1, or auto, which is CUDA where there is one."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The dynamics ensemble."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        _require_device(self.device)
        _require(self, "at least 1", "updates", "checkpoint_every")
        _require(self, "at least 0", "seed", "size", "threads")
        _require(self, "between 0 and 1", "cooldown", "held_out_episodes")
        if self.held_out_episodes > 0.5:
            raise ConfigError(f"held_out_episodes must be at most 0.5, not {self.held_out_episodes}.")


@dataclass(frozen=True)
class LearnConfig:
    """Offline learning of goal-conditioned values, as far as all learners share it."""

    # What presets change for a learner, by their names, and beyond that for an environment, by both names.
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    exceptions: ClassVar[dict[tuple[str, str], dict[str, Any]]] = {}
    algo: str = field(default="", init=False)
    """Name of the learner."""
    seed: int = 0
    """Seed of everything random; with several learners, of the first."""
    seeds: int = 1
    """Independent learners, of consecutive seeds, trained as one batched computation."""
    data: str = ""
    """What to learn from: empty for the run's exploration; else datasets or runs, separated by commas, each
    with its share after an equals sign if they are to be mixed (own=0.8,expert.npz=0.2)."""
    size: int = 0
    """Transitions to take of the data; 0 takes all, or as many as the shares allow."""
    model: str = ""
    """Dynamics model, for learners that need one: empty for exploration's, else a name given to
    train-model."""
    bootstrap: Literal["none", "trajectories"] = "none"
    """Whether each learner sees all trajectories, or a resample of them with replacement of its own."""
    updates: int = 0
    """Gradient steps; 0 takes as many as make the epochs."""
    epochs: float = 200
    """Passes over the dataset, where updates is 0."""
    batch_size: int = 512
    """Relabelled transitions per update."""
    layers: int = 2
    """Hidden layers of actor and critics."""
    units: int = 512
    """Units per hidden layer."""
    actor_learning_rate: float = 1e-5
    """Step size of Adam for the actor."""
    critic_learning_rate: float = 1e-5
    """Step size of Adam for the critics."""
    cooldown: float = 0.0
    """Last share of the updates, over which the step sizes fall linearly to zero."""
    critic_loss: CriticLoss = "squared"
    """Loss of values: squared TD error, or cross-entropy to the same targets, whose gradient does not vanish
    where values are small."""
    polyak: float = 0.995
    """Share of the target critics kept at each update."""
    gamma: float = 0.0
    """Discount factor; 0 takes the task's."""
    p_goal: float = 0.75
    """Share of goals taken from the future of the same trajectory."""
    p_geometric: float = 0.2
    """Parameter of the geometric distribution of how far ahead."""
    p_near: float = 0.0
    """Share of the other goals that are the nearest of some random ones to what the state achieves: what
    looks near, and need not be, as behind a wall."""
    reward: Literal["state", "success"] = "state"
    """What is rewarded in the data: the very state that a goal was taken from, as in the paper, or whatever
    passes the task's test of success. Where many states have one goal, as long as a block rests, the former
    does not tell that it is reached already."""
    hindsight: bool = False
    """Whether targets are at least what the data show: γ^(k − 1) for a goal that the trajectory itself comes
    to after k steps. True of worlds without luck; elsewhere it takes luck for skill."""
    p_state: float = 0.0
    """Share of goals that are whole states, beside what the task calls a goal; a graph whose edges lead to
    whole states needs some."""
    quick_units: int = 0
    """Units per hidden layer of a small network trained along to give V(s; g) in one evaluation, where the
    learner needs its actor and critics: graphs ask for very many values. 0 trains none."""
    quick_learning_rate: float = 1e-3
    """Step size of Adam for the quick network."""
    quick_every: int = 2
    """Updates of the learner per update of the quick network."""
    checkpoint_every: int = 2000
    """Updates between checkpoints."""
    figure_every: int = 10_000
    """Updates between figures of the values."""
    threads: int = 0
    """CPU threads to compute with; 0 takes all."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, one of several as cuda:1, or auto, which is CUDA where there is one."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        _require_device(self.device)
        _require(self, "at least 1", "seeds", "batch_size", "layers", "units")
        _require(self, "at least 1", "checkpoint_every", "figure_every", "quick_every")
        _require(self, "at least 0", "seed", "size", "updates", "threads", "quick_units")
        _require(self, "above 0", "actor_learning_rate", "critic_learning_rate", "quick_learning_rate")
        _require(self, "between 0 and 1", "polyak", "p_goal", "p_near", "p_state", "cooldown")
        _require(self, "above 0 and at most 1", "p_geometric")
        if not 0 <= self.gamma < 1:
            raise ConfigError(f"gamma must be between 0 and 1, not {self.gamma}.")
        if self.updates == 0 and not 0 < self.epochs < math.inf:
            raise ConfigError("Nothing would be learned: updates or epochs must be above 0.")


@dataclass(frozen=True)
class GraphConfig:
    """Aggregation of values over a graph of dataset states."""

    vertices: int = 0
    """Vertices; 0 takes the task's number."""
    sampling: Literal["inverse-density", "uniform"] = "inverse-density"
    """How vertices are drawn from the data."""
    through: Literal["goals", "states"] = "goals"
    """What an edge to a vertex reaches: the goal it achieves, as in the paper, or the whole state, for which
    values must be learned with p_state above 0. Where goals are but a part of a state, arriving at a vertex's
    goal is not being there."""
    arrival: float = 0.0
    """Steps added to the length log_γ V of every edge. Values count from the step before the goal, so that an
    edge takes one step more than its length; the paper leaves it out, and 1 makes lengths add up."""
    calibrated: bool = False
    """Whether aggregated distances are divided by how many times as long as the values say they are, in the
    median over random pairs: ways through states of the data are detours. Plans towards the mean of particles
    are the same with and without."""
    trust: float = 1.0
    """Edges are trusted up to this many times the bottleneck, the shortest limit that keeps a state connected
    to its goal. The paper trusts no longer ones; some more leave the planner a choice of ways."""
    candidates: int = 0
    """Random states of the data among which vertices are drawn; 0 takes all, at a cost that grows with the
    data."""
    density_goals: int = 1000
    """Random goals over which the density of a state is averaged."""
    density_scale: float = 20.0
    """Scale of the exponential kernel on temporal distances."""
    max_distance: float = 500.0
    """Temporal distances are clipped here."""
    evaluate: Evaluate = "exact"
    """What gives the lengths of edges: the learner's own networks; the quick one trained along; or that one
    with the shortest edges between vertices and to goals checked by the former, the longer of both
    counting."""
    near_vertices: int = 100
    """Only this many vertices are looked at while planning; 0 looks at all."""
    preselect: Preselect = "nearest"
    """Which: those nearest to the current state, as in the paper, or those nearest to the goal by way of them
    among all that a plan can come within the threshold of."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        _require(self, "at least 0", "vertices", "candidates", "near_vertices", "arrival")
        _require(self, "at least 1", "density_goals", "trust")
        _require(self, "above 0", "density_scale", "max_distance")


@dataclass(frozen=True)
class ReachConfig:
    """Reaching goals: planning with the model towards states of high value."""

    seed: int = 0
    """Seed of everything random."""
    horizon: int = 0
    """Planning horizon; 0 takes the task's."""
    valuing: Valuing = "particles"
    """What is valued: every particle at the end of an imagined trajectory, or their mean, which is as many
    times cheaper as there are particles."""
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    """The trajectory optimiser."""
    graph: GraphConfig = field(default_factory=GraphConfig)
    """The aggregation graph."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        _require(self, "at least 0", "seed", "horizon")


@dataclass(frozen=True)
class EvaluateConfig:
    """Evaluation: how often a controller reaches the goals of given cases."""

    controller: str = "mbp+graph"
    """What acts: the policy (actor), planning (mbp) towards values, aggregated over a graph (mbp+graph or
    mbp+graph-uniform), towards the goal alone (mbp+sparse), or towards SORB's subgoals (mbp+sorb-10)."""
    algo: str = "td3"
    """Learner of the value function."""
    seed: int = 0
    """Seed of the value function."""
    values: str = ""
    """Name of the training of the value function, if it was given one."""
    model: str = ""
    """Dynamics model: empty for exploration's, else a name given to train-model."""
    cases: str = ""
    """What to reach: empty for all cases of the task; a file of goals ending in .json; or a list separated by
    commas, of names of cases, own for all of them, and random:N for so many goals that the data achieve."""
    seeds: int = 1
    """How often each case is run, with consecutive seeds of everything random, the first being reach.seed."""
    together: int = 24
    """Cases planned in one batch, at most; each takes an environment of its own."""
    threads: int = 0
    """CPU threads to compute with; 0 takes all."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, one of several as cuda:1, or auto, which is CUDA where there is one."""
    reach: ReachConfig = field(default_factory=ReachConfig)
    """How goals are reached."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        _require_device(self.device)
        _require(self, "at least 1", "seeds", "together")
        _require(self, "at least 0", "seed", "threads")


@dataclass(frozen=True)
class DiagnoseConfig:
    """Diagnosis: where values trap who climbs them, and how accurate they and the model are."""

    algo: str = "td3"
    """Learner of the value functions, which are all those trained together."""
    seed: int = 0
    """Seed of one of them, whose values, plain and aggregated, are held against true ones."""
    values: str = ""
    """Name of their training, if it was given one."""
    model: str = ""
    """Dynamics model: empty for exploration's, else a name given to train-model."""
    evaluations: str = ""
    """Evaluations whose trajectories are looked at: empty for all of the run, else their names, separated by
    commas."""
    horizon: int = 0
    """Steps within which something better is looked for; 0 takes the planning horizon of the task."""
    sequences: int = 50
    """Random action sequences per state, which tell what can be reached."""
    pool: int = 1000
    """Random states of the data, the best of which counts as the best there is."""
    stride: int = 1
    """Steps between two states of a trajectory that are looked at."""
    draws: int = 0
    """Seed of everything that is drawn."""
    threads: int = 0
    """CPU threads to compute with; 0 takes all."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, one of several as cuda:1, or auto, which is CUDA where there is one."""
    graph: GraphConfig = field(default_factory=GraphConfig)
    """The aggregation graph."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        _require_device(self.device)
        _require(self, "at least 1", "sequences", "pool", "stride")
        _require(self, "at least 0", "seed", "horizon", "draws", "threads")


StageConfig = ExploreConfig | TrainModelConfig | LearnConfig | ReachConfig | EvaluateConfig | DiagnoseConfig
Config = TypeVar(
    "Config", ExploreConfig, TrainModelConfig, LearnConfig, ReachConfig, EvaluateConfig, DiagnoseConfig
)


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> dict[str, tuple[Any, Any]]:
    """The fields, by dotted name, in which two nested mappings differ, with both values."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in [*new, *(key for key in old if key not in new)]:
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found |= differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found[prefix + key] = (before, after)
    return found


def from_dict(cls: type[Any], values: Mapping[str, Any]) -> Any:
    """Settings read back from JSON; fields that this version does not know are refused."""
    hints = get_type_hints(cls)
    known = {entry.name: entry for entry in fields(cls)}
    unknown = [name for name in values if name not in known]
    if unknown:
        raise ConfigError(f"{cls.__name__} has no setting {unknown[0]}.")
    return cls(
        **{
            name: from_dict(hints[name], value) if is_dataclass(hints[name]) else value
            for name, value in values.items()
            if known[name].init
        }
    )
