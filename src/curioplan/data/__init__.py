"""Trajectories: where they are kept, how goals are relabelled, and the files they come from and go to."""

from curioplan.data.formats import convert, load
from curioplan.data.inspect import coverage_figure, displacements, first_visits, format_summary, summary
from curioplan.data.minari_format import save_minari
from curioplan.data.mixing import mix
from curioplan.data.relabel import Batch, Relabelling, sample_batch, sample_goal_rows
from curioplan.data.sources import gather
from curioplan.data.trajectories import Episode, TrajectoryStore, Transitions
from curioplan.data.validation import RawTrajectories, validate

__all__ = [
    "Batch",
    "Episode",
    "RawTrajectories",
    "Relabelling",
    "TrajectoryStore",
    "Transitions",
    "convert",
    "coverage_figure",
    "displacements",
    "first_visits",
    "format_summary",
    "gather",
    "load",
    "mix",
    "sample_batch",
    "sample_goal_rows",
    "save_minari",
    "summary",
    "validate",
]
