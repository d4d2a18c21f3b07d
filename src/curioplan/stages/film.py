"""Videos of an evaluation, made from the trajectories it has left."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from curioplan.analysis.video import Frame, TopView, captioned, write_video
from curioplan.config import EvaluateConfig, from_dict
from curioplan.envs import Task, make_env, make_task
from curioplan.errors import EnvError, RunError
from curioplan.runs import read_run, stage_name
from curioplan.stages.cases import named_cases
from curioplan.stages.control import Parts
from curioplan.stages.episodes import Outcome, replay
from curioplan.stages.evaluate import STAGE, load_outcomes, uses_values
from curioplan.storage import read_json
from curioplan.values import Values

LONGEST = 300  # frames; longer episodes are shown in larger steps


def film(run: str | Path, name: str, cases: str = "", *, most: int = 0) -> list[Path]:
    """Film the first run of cases of a finished evaluation.

    Args:
        run: The run folder.
        name: The name of the evaluation.
        cases: Names of its cases, separated by commas; by default all.
        most: Film only so many of them, the first; 0 films all.

    Returns:
        The videos, ``RUN/evaluations/NAME/videos/CASE.mp4``, or ``.gif`` where MP4 cannot be written.
    """
    run = Path(run)
    task = make_task(str(read_run(run)["env"]))
    folder = run / STAGE / stage_name(name)
    if not (folder / "result.json").is_file():
        raise RunError(f"{folder} holds no finished evaluation; curioplan evaluate makes one.")
    config = from_dict(EvaluateConfig, read_json(folder / "config.json")["settings"])
    outcomes = load_outcomes(folder)
    first = {outcome.case.name: outcome for outcome in reversed(outcomes)}
    known = list(dict.fromkeys(outcome.case for outcome in outcomes))
    chosen = (named_cases(cases, known, str(folder)) if cases else known)[: most or None]
    values = None
    if task.floor_plan is not None and uses_values(config):
        values = Parts(run, task, config.reach, config.algo, config.seed, config.values).values()
    videos: dict[Path, Path] = {}
    for number, case in enumerate(chosen, start=1):
        stem = folder / "videos" / (re.sub(r"[^\w]+", "-", case.name).strip("-") or "case")
        stem = stem if stem not in videos else stem.with_name(f"{stem.name}-{number}")
        outcome = first[case.name]
        frames = seen_from_above(task, outcome, values) if task.floor_plan else rendered(task, outcome)
        videos[stem] = write_video(stem, frames)
    return list(videos.values())


def seen_from_above(task: Task, outcome: Outcome, values: Values | None) -> Iterator[Frame]:
    """Frames of an episode on its map, with the values of its goal and the plans made on the way."""
    view = TopView(task, outcome.goal, values.value if values else None, values.gamma if values else None)
    path, plans = outcome.observations.numpy(), outcome.plans.numpy()
    numbers = np.searchsorted(outcome.plan_steps.numpy(), np.arange(len(path)), side="right") - 1
    none = np.zeros((0, 0, 2), np.float32)
    for step in _shown(outcome):
        plan = plans[numbers[step]] if numbers[step] >= 0 else none
        yield view.frame(path[: step + 1], plan, _caption(task, outcome, step))


def rendered(task: Task, outcome: Outcome) -> Iterator[Frame]:
    """Frames of an episode as its environment renders them, from its start and its actions."""
    shown = set(_shown(outcome))
    with closing(make_env(task.env, render_mode="rgb_array")) as env:
        for step, _ in enumerate(replay(env, outcome)):
            if step in shown:
                frame = np.asarray(env.render())
                if frame.ndim != 3 or frame.dtype != np.uint8:
                    raise EnvError(f"{task.name} does not render frames of bytes, (height, width, 3).")
                yield captioned(frame[..., :3], _caption(task, outcome, step))


def _shown(outcome: Outcome) -> list[int]:
    """The steps that make a frame, the last included."""
    last = len(outcome.actions)
    return [*range(0, last, last // LONGEST + 1), last]


def _caption(task: Task, outcome: Outcome, step: int) -> str:
    parts = [outcome.case.name, f"step {step}"]
    if task.floor_plan is not None and task.goal_indices != (0, 1):
        now, goal = (
            " ".join(f"{x:.0f}" for x in numbers) for numbers in (outcome.achieved_goals[step], outcome.goal)
        )
        parts += [f"now {now}", f"goal {goal}"]
    return "    ".join([*parts, *(["reached"] if step == outcome.steps else [])])
