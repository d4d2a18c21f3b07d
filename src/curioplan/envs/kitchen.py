"""A Franka arm in a kitchen: ``FrankaKitchen-v1`` at ten actions per second, one object to move at a time."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from gymnasium_robotics.envs.franka_kitchen.franka_env import FrankaRobot
from numpy.typing import NDArray

from curioplan.envs.camera import Camera
from curioplan.envs.task import Case, Floats, MovableObject, Observation, Task, Within

SUCCESS_RADIUS = 0.3
FRAME_SKIP = 50  # simulation steps of 2 ms per action
ROBOT_JOINTS = 9  # seven of the arm, then the two fingers

# The joint positions every episode of FrankaKitchen-v1 starts from.
INITIAL = (
    *(0.148388023, -1.76848573, 1.84390296, -2.4768576, 0.260252026, 0.712533105, 1.59515394),  # arm
    *(0.0479267505, 0.0371350919),  # fingers
    *(-2.6627985e-04, -5.18043486e-05, 3.1287722e-05, -4.51199853e-05),  # bottom burners
    *(-3.90842156e-06, -4.22629655e-05, 6.28065475e-05, 4.04984708e-05),  # top burners
    *(4.62730939e-04, -2.26906415e-04),  # light
    -4.65501369e-04,  # slide cabinet
    *(-6.44129196e-03, -1.77048263e-03),  # hinge cabinets
    1.08009684e-03,  # microwave
    *(-0.26939744, 0.350383255, 1.61944683),  # kettle: position
    *(1.00618764, 4.0639512e-03, -6.62095997e-03, -2.68278933e-04),  # and quaternion
)

OBJECTS = {  # which joints, and where to bring them
    "bottom burner": ((11, 12), (-0.88, -0.01)),
    "top burner": ((15, 16), (-0.92, -0.01)),
    "light": ((17, 18), (-0.69, -0.05)),
    "slide cabinet": ((19,), (0.37,)),
    "hinge cabinet": ((20, 21), (0.0, 1.45)),
    "microwave": ((22,), (-0.75,)),
    "kettle": ((23, 24, 25, 26, 27, 28, 29), (-0.23, 0.75, 1.62, 0.99, 0.0, 0.0, -0.06)),
}
GOAL_INDICES = tuple(index for joints, _ in OBJECTS.values() for index in joints)


def goal_with(name: str) -> tuple[float, ...]:
    """The goal that has one object at its target and all others where they are initially."""
    moved = dict(zip(*OBJECTS[name], strict=True))
    return tuple(moved.get(index, INITIAL[index]) for index in GOAL_INDICES)


def object_slices() -> tuple[tuple[int, int], ...]:
    """Where each object is in the goal."""
    stops = np.cumsum([len(joints) for joints, _ in OBJECTS.values()]).tolist()
    return tuple(zip([0, *stops[:-1]], stops, strict=True))


TASK = Task(
    name="kitchen",
    env="curioplan/Kitchen-v0",
    observation_dim=30,
    goal_dim=17,
    action_low=(-1.0,) * 8,
    action_high=(1.0,) * 8,
    episode_length=280,
    success=Within(SUCCESS_RADIUS, parts=object_slices()),
    gamma=0.99,
    explore_horizon=30,
    reach_horizon=15,
    graph_vertices=1000,
    goal_indices=GOAL_INDICES,
    cases=tuple(Case(name, goal_with(name), INITIAL) for name in OBJECTS),
    objects=tuple(MovableObject(name, joints, SUCCESS_RADIUS) for name, (joints, _) in OBJECTS.items()),
)


class Kitchen(FrankaRobot):
    """Bring one of seven objects to its place and leave the other six where they are.

    Observed are the 30 joint positions of robot and objects, without the noise of ``FrankaKitchen-v1``,
    which would enter the controls too: an action sets joint velocities relative to the observed positions.
    ``reset(options={"state": …})`` sets exactly these positions, at rest.

    The paper's robot was an older model with eight actuators. Today's has nine; the eighth action drives
    both fingers.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}
    task = TASK

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(
            model_path="../assets/kitchen_franka/kitchen_assets/kitchen_env_model.xml",
            frame_skip=FRAME_SKIP,
            robot_noise_ratio=0.0,
            render_mode=render_mode,
        )

        def box(size: int) -> spaces.Box:
            return spaces.Box(-np.inf, np.inf, (size,), np.float64)

        self.observation_space = spaces.Dict(
            observation=box(self.task.observation_dim),
            achieved_goal=box(self.task.goal_dim),
            desired_goal=box(self.task.goal_dim),
        )
        self.action_space = spaces.Box(-1.0, 1.0, (self.task.action_dim,), np.float32)
        self._goal: Floats = np.zeros(self.task.goal_dim)
        self._start: Floats = np.array(INITIAL)
        self._camera = Camera(self.model, (-0.2, 0.5, 2.0), distance=2.7, azimuth=72.0, elevation=-27.0)
        # Shadows, reflections and antialiasing make a frame take a second instead of some 40 ms.
        self.model.light_castshadow[:] = 0
        self.model.mat_reflectance[:] = 0.0
        self.model.vis.quality.offsamples = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode, at ``options["state"]`` and towards ``options["goal"]`` where they are given.

        Without them it starts from the initial joint positions, towards one of the evaluation goals.
        """
        state, goal = self.task.read_options(options)
        self._start = np.array(INITIAL) if state is None else state
        super().reset(seed=seed)  # clears the simulator and calls reset_model
        if goal is None:
            goal = np.array(self.task.cases[self.np_random.integers(len(self.task.cases))].goal)
        self._goal = goal
        observation = self._get_obs()
        return observation, {"is_success": self._is_success(observation)}

    def reset_model(self) -> Observation:
        """Put all joints where the episode starts, at rest."""
        self.set_state(self._start, np.zeros(self.model.nv))
        return self._get_obs()

    def step(self, action: NDArray[np.float32]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Drive the seven joints of the arm and, with the last action, both fingers for 0.1 s."""
        observation, *_ = super().step(np.append(action, action[-1]))
        success = self._is_success(observation)
        return observation, float(success), False, False, {"is_success": success}

    def compute_reward(self, achieved_goal: Floats, desired_goal: Floats, info: Any) -> Any:
        """1 where every object is within 0.3 of the desired goal, else 0; works on batches."""
        return self.task.success(np.asarray(achieved_goal), np.asarray(desired_goal)).astype(np.float64)

    def render(self) -> NDArray[np.uint8] | None:
        """The kitchen over the robot's shoulder, as ``(height, width, 3)`` bytes."""
        return None if self.render_mode is None else self._camera.frame(self.data)

    def close(self) -> None:
        """Free the renderer."""
        self._camera.close()
        super().close()

    def _is_success(self, observation: Observation) -> bool:
        return bool(self.task.success(observation["achieved_goal"], self._goal))

    def _get_obs(self) -> Observation:
        positions = self.data.qpos.copy()
        self._last_robot_qpos = positions[:ROBOT_JOINTS]  # what the robot's controls start from
        return {
            "observation": positions,
            "achieved_goal": self.task.goal_of(positions),
            "desired_goal": self._goal.copy(),
        }
