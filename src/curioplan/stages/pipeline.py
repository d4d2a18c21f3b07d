"""The whole way in one resumable command: explore, train, evaluate, diagnose, report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from curioplan.config import DiagnoseConfig, EvaluateConfig, ExploreConfig, LearnConfig
from curioplan.presets import PresetName, preset
from curioplan.stages.diagnose import diagnose
from curioplan.stages.evaluate import run_evaluation
from curioplan.stages.explore import explore
from curioplan.stages.film import film
from curioplan.stages.report import report
from curioplan.stages.train import train
from curioplan.storage import read_json
from curioplan.values import learner_config

CONTROLLERS = ("actor", "mbp", "mbp+graph")
FILMED = 3
"""Cases that are filmed, the first."""
_WHY = {
    "actor": "the learned policy alone acts",
    "mbp": "plans with the learned model end where the learned values are highest",
    "mbp+graph": "long distances are put together from short ones, which values know best",
}


class Step(NamedTuple):
    """A stage of the pipeline.

    Attributes:
        name: What to call it.
        do: Runs it, or what of it is missing, and says where the result is.
        why: What it does and what for, in a line.
    """

    name: str
    do: Callable[[], Path]
    why: str


def pipeline(
    env: str,
    out: str | Path,
    *,
    exploring: ExploreConfig,
    learning: LearnConfig,
    evaluating: EvaluateConfig,
    diagnosing: DiagnoseConfig,
    controllers: Sequence[str] = CONTROLLERS,
    video: bool = False,
    progress: bool = True,
) -> list[Step]:
    """The stages from an environment to success rates, in order; the last controller may be filmed."""
    return [
        Step(
            "explore",
            lambda: explore(env, out, exploring, progress=progress),
            "act where an ensemble of models disagrees, and learn the models from what happens; no reward, "
            "no demonstrations",
        ),
        Step(
            "train",
            lambda: train(out, learning.algo, learning, progress=progress),
            "learn offline, from these trajectories alone, how far any state is from any goal",
        ),
        *(
            Step(
                f"evaluate {each}",
                _evaluation(
                    out,
                    replace(evaluating, controller=each),
                    progress,
                    filmed=video and each == controllers[-1],
                ),
                _WHY.get(each, "try to reach the goals"),
            )
            for each in controllers
        ),
        Step(
            "diagnose", lambda: diagnose(out, diagnosing), "find where the values would trap who climbs them"
        ),
        Step("report", lambda: report(out), "put everything on one page"),
    ]


def run_pipeline(
    env: str,
    out: str | Path,
    *,
    preset_name: PresetName = "cpu",
    steps: int = 0,
    updates: int = 0,
    seed: int = 0,
    algo: str = "td3",
    device: str = "cpu",
    cases: str = "",
    video: bool = False,
    progress: bool = True,
    say: Callable[[str], None] | None = None,
) -> dict[str, Path]:
    """Explore an environment, learn values, and see how often controllers reach its goals with them.

    Every stage continues where it stopped, so the same call finishes an interrupted run.

    Args:
        env: A short name, a Gymnasium id, or ``module:callable``.
        out: The run folder.
        preset_name: Where the settings of all stages start from.
        steps: Steps of exploration; 0 takes the preset's.
        updates: Gradient steps of the learner; 0 takes the preset's.
        seed: Seed of everything random.
        algo: The learner.
        device: Where to compute: ``cpu``, ``cuda``, one of several as ``cuda:1``, or ``auto``, which is CUDA
            where there is one.
        cases: What to reach: all goals of the task by default; else as for
            :func:`~curioplan.stages.evaluate.evaluate`.
        video: Whether to film the first cases of the last controller.
        progress: Whether to show progress bars.
        say: Told before each stage what it does and what for.

    Returns:
        The folder of every stage, by the stage's name.
    """
    exploring = replace(preset(preset_name, ExploreConfig, env), seed=seed, device=device)
    learning = replace(learner_config(algo, preset_name, env), seed=seed, device=device)
    evaluating = replace(preset(preset_name, EvaluateConfig, env), cases=cases, device=device)
    stages = pipeline(
        env,
        out,
        exploring=replace(exploring, steps=steps or exploring.steps),
        learning=replace(learning, updates=updates or learning.updates),
        evaluating=replace(evaluating, algo=algo, seed=seed, reach=replace(evaluating.reach, seed=seed)),
        diagnosing=replace(preset(preset_name, DiagnoseConfig, env), algo=algo, seed=seed, device=device),
        video=video,
        progress=progress,
    )
    folders = {}
    for number, stage in enumerate(stages, start=1):
        if say is not None:
            say(f"[{number}/{len(stages)}] {stage.name}: {stage.why}")
        folders[stage.name] = stage.do()
    return folders


def success_table(folders: dict[str, Path]) -> str:
    """The success rates of all evaluations among the folders of a pipeline, as a table."""
    lines = [f"{'controller':<12} success   90 % interval   episodes"]
    for name, folder in folders.items():
        if name.startswith("evaluate "):
            result = read_json(folder / "result.json")
            low, high = result["interval"]
            lines.append(
                f"{result['controller']:<12} {result['success']:>7.3f}  {low:>6.3f} – {high:.3f} "
                f"{result['episodes']:>10}"
            )
    return "\n".join(lines)


def _evaluation(
    out: str | Path, config: EvaluateConfig, progress: bool, *, filmed: bool
) -> Callable[[], Path]:
    def do() -> Path:
        folder = run_evaluation(out, config, progress=progress)
        if filmed and not any((folder / "videos").glob("*")):
            film(out, folder.name, most=FILMED)
        return folder

    return do
