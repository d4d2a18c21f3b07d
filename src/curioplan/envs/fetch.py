"""A Fetch arm pushes a block: ``FetchPush-v4`` with its state settable, and 24 frozen evaluation cases.

The dynamics and the start distribution are those of Gymnasium-Robotics, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import mujoco
import numpy as np
from gymnasium.utils import EzPickle
from gymnasium_robotics.envs.fetch.push import MujocoFetchPushEnv
from gymnasium_robotics.utils import mujoco_utils, rotations
from numpy.typing import NDArray

from curioplan.envs.camera import Camera
from curioplan.envs.task import Case, Floats, MovableObject, Observation, Task, Within
from curioplan.errors import EnvError

SUCCESS_RADIUS = 0.05

# What the 25 entries of an observation are, in order, with the sizes of the parts. Velocities are per
# environment step, and the block's linear velocity is relative to the gripper's.
PARTS = {
    "gripper position": 3,
    "block position": 3,
    "relative position of the block": 3,
    "finger positions": 2,
    "block rotation": 3,
    "relative velocity of the block": 3,
    "angular velocity of the block": 3,
    "gripper velocity": 3,
    "finger velocities": 2,
}
BOUNDARIES = np.cumsum(list(PARTS.values()))[:-1]
READ_BACK = 1e-4  # how far a restored observation may be from the given one

ARM = tuple(
    f"robot0:{name}_joint"
    for name in (
        "shoulder_pan",
        "shoulder_lift",
        "upperarm_roll",
        "elbow_flex",
        "forearm_roll",
        "wrist_flex",
        "wrist_roll",
    )
)
FINGERS = ("robot0:r_gripper_finger_joint", "robot0:l_gripper_finger_joint")
LIMIT_SLACK = 0.06  # rad by which the arm's joints overshoot their soft limits in simulation
SHOULDER_STARTS = (0.0, 1.2, -1.2)  # rad; the last two only for places behind the robot

# The evaluation cases, drawn once and frozen, because the gripper's initial position moves with the
# version of MuJoCo. Drawn from default_rng(0) on MuJoCo 3.4.0, for one case after the other: the goal,
# uniform(±0.15, size=3) around FetchPush-v4's own ``initial_gripper_xpos`` (1.345507106, 0.749025249) with
# its height set to the table's; then the block, uniform(±0.15, size=2) around the same point, again and
# again until it is at least 0.1 away. In cases 17 and 23 the block starts at its goal.
GRIPPER = (1.345482280677, 0.749026984725, 0.415998735926)  # where the gripper is after a reset
TABLE_HEIGHT = 0.424892223249  # of the centre of a block on the table
CASES = (  # block (x, y), goal (x, y)
    ((1.200465, 0.843006), (1.386596, 0.679961)),
    ((1.358595, 0.879547), (1.469334, 0.781016)),
    ((1.205583, 0.817922), (1.440263, 0.599847)),
    ((1.204003, 0.636310), (1.248204, 0.857979)),
    ((1.310610, 0.898188), (1.396694, 0.793182)),
    ((1.236036, 0.815472), (1.489758, 0.804688)),
    ((1.462353, 0.879238), (1.353113, 0.692098)),
    ((1.312993, 0.866108), (1.302846, 0.770484)),
    ((1.445300, 0.835155), (1.263654, 0.785981)),
    ((1.296342, 0.644109), (1.267318, 0.861971)),
    ((1.211113, 0.720391), (1.330609, 0.837923)),
    ((1.255362, 0.881659), (1.255061, 0.626251)),
    ((1.473653, 0.731138), (1.305040, 0.630674)),
    ((1.381571, 0.897554), (1.481884, 0.748994)),
    ((1.475125, 0.633505), (1.480190, 0.737039)),
    ((1.199919, 0.858117), (1.414212, 0.877252)),
    ((1.487296, 0.866006), (1.489866, 0.886188)),
    ((1.436071, 0.876084), (1.442219, 0.743022)),
    ((1.474812, 0.611178), (1.275346, 0.760706)),
    ((1.411273, 0.603823), (1.415109, 0.783337)),
    ((1.215332, 0.851420), (1.422892, 0.752853)),
    ((1.485326, 0.767695), (1.215514, 0.702318)),
    ((1.263268, 0.636392), (1.273166, 0.671528)),
    ((1.440943, 0.786977), (1.282006, 0.774862)),
)


def state_at_rest(gripper: tuple[float, ...], block: tuple[float, ...]) -> tuple[float, ...]:
    """The observation of a closed gripper and an upright block that do not move."""
    relative = tuple(b - g for b, g in zip(block, gripper, strict=True))
    return (*gripper, *block, *relative, *(0.0,) * 16)


TASK = Task(
    name="fetch_push",
    env="curioplan/FetchPush-v0",
    observation_dim=25,
    goal_dim=3,
    action_low=(-1.0,) * 4,
    action_high=(1.0,) * 4,
    episode_length=50,
    success=Within(SUCCESS_RADIUS),
    gamma=0.95,
    explore_horizon=30,
    reach_horizon=15,
    graph_vertices=1000,
    goal_indices=(3, 4, 5),
    cases=tuple(
        Case(f"push {number}", (*goal, TABLE_HEIGHT), state_at_rest(GRIPPER, (*block, TABLE_HEIGHT)))
        for number, (block, goal) in enumerate(CASES, start=1)
    ),
    objects=(MovableObject("block", (3, 4, 5), SUCCESS_RADIUS),),
)


def damped_least_squares(
    evaluate: Callable[[Floats], tuple[Floats, Floats]],
    scale: Floats,
    start: Floats,
    low: Floats,
    high: Floats,
) -> Floats:
    """The joint angles within bounds that bring a scaled error nearest to zero, from ``start`` downhill.

    Levenberg–Marquardt: steps Jᵀ(JJᵀ + λ)⁻¹e with a damping λ that falls while steps help and grows while
    they do not. Joints that are pushed against a bound are left out of the step.

    Args:
        evaluate: The error e at given angles, and the Jacobian J of what has to move to mend it.
        scale: Weights of the components of the error.
        start: The angles to start from.
        low: Lower bounds of the angles.
        high: Upper bounds of the angles.
    """

    def scaled(angles: Floats) -> tuple[Floats, Floats]:
        error, jacobian = evaluate(angles)
        return scale * error, scale[:, None] * jacobian

    angles, (error, jacobian), damping = start, scaled(start), 1e-4
    for _ in range(60):
        if np.linalg.norm(error) < 1e-10 or damping > 1e3:
            break
        pull = jacobian.T @ error
        held = ((angles <= low) & (pull < 0)) | ((angles >= high) & (pull > 0))
        free = np.where(held, 0.0, jacobian)
        step = free.T @ np.linalg.solve(free @ free.T + damping * np.eye(len(error)), error)
        trial = np.clip(angles + step, low, high)
        left, bent = scaled(trial)
        gain = 1.0 - (left @ left) / (error @ error)
        if gain <= 0.0:
            damping *= 10.0
            continue
        angles, error, jacobian, damping = trial, left, bent, damping / 10.0
        if gain < 1e-3:
            break
    return angles


class FetchPush(MujocoFetchPushEnv):
    """Push a block to a place on the table; the goal is the block's position.

    ``reset(options={"state": …})`` takes an observation and finds a simulator state that has it, to within
    1e-8 wherever a rollout takes the arm. An observation does not determine the simulator, and this is
    how the rest is chosen:

    - of the arm's postures, the one found from the initial one that keeps the gripper's initial
      orientation as far as possible, so a gripper that had tilted (on a stretched arm) comes back straight;
    - the arm's joint velocities give the gripper its velocity and do not turn it, as far as possible;
    - base, torso and head are as initially, with the torso creeping upwards at 3 mm/s;
    - the clock is at the start of an episode, and the solver starts cold.

    So the step after it differs: by some 0.1 mm around the initial position, by centimetres if the arm had
    been twisted behind the robot. Refused are observations of no simulator state: a gripper out of reach, a
    relative position other than block minus gripper. Euler angles outside their range come back within it.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 25}
    task = TASK

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        EzPickle.__init__(self, render_mode)
        self.goal = np.zeros(self.task.goal_dim)
        self._camera = Camera(self.model, (1.25, 0.75, 0.45), distance=1.6, azimuth=148.0, elevation=-38.0)
        mocap = self.model.body("robot0:mocap").id
        self.model.geom_rgba[self.model.geom_bodyid == mocap, 3] = 0.0  # its cross hairs hide the block
        self._target = self.model.site("target0").id
        self._grip = self.model.site("robot0:grip").id
        joints = [self.model.joint(name).id for name in ARM]
        self._arm_qpos = self.model.jnt_qposadr[joints]
        self._arm_dofs = self.model.jnt_dofadr[joints]
        limits = np.where(
            self.model.jnt_limited[joints, None], self.model.jnt_range[joints], (-np.inf, np.inf)
        )
        self._arm_low, self._arm_high = limits[:, 0] - LIMIT_SLACK, limits[:, 1] + LIMIT_SLACK
        mujoco.mj_kinematics(self.model, self.data)
        self._orientation = self.data.site_xmat[self._grip].reshape(3, 3).copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode, at ``options["state"]`` and towards ``options["goal"]`` where they are given.

        Without them both are drawn as in ``FetchPush-v4``.
        """
        state, goal = self.task.read_options(options)
        super().reset(seed=seed)
        if goal is not None:
            self.goal = goal
        if state is not None:
            self._restore(state)
        observation = self._get_obs()
        return observation, {"is_success": self._is_success(observation["achieved_goal"], self.goal)}

    def step(self, action: NDArray[np.float32]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Move the gripper by up to 5 cm per axis; the fingers stay closed, whatever the fourth action."""
        observation, reward, _, _, info = super().step(action)
        return observation, float(reward), False, False, info

    def compute_reward(self, achieved_goal: Floats, desired_goal: Floats, info: Any) -> Any:
        """1 where the achieved goal meets the desired one, else 0; works on batches."""
        return self.task.success(np.asarray(achieved_goal), np.asarray(desired_goal)).astype(np.float64)

    def render(self) -> NDArray[np.uint8] | None:
        """The scene with the goal as a red ball, as ``(height, width, 3)`` bytes."""
        if self.render_mode is None:
            return None
        # Set by hand, so that looking at an episode does not run the simulator's forward pass in its midst.
        self.data.site_xpos[self._target] = self.goal
        return self._camera.frame(self.data)

    def close(self) -> None:
        """Free the renderer."""
        self._camera.close()
        super().close()

    def _is_success(self, achieved_goal: Floats, desired_goal: Floats) -> bool:
        return bool(self.task.success(achieved_goal, desired_goal))

    def _restore(self, state: Floats) -> None:
        """Put the simulator into a state that has the given observation."""
        model, data = self.model, self.data
        gripper, block, _, fingers, rotation, block_velocity, spin, velocity, finger_velocities = np.split(
            state, BOUNDARIES
        )
        mujoco.mj_resetData(model, data)
        data.time = self.initial_time
        data.qpos[:] = self.initial_qpos
        data.qvel[:] = self.initial_qvel
        self._place_gripper(gripper)
        self._move_gripper(velocity / self.dt)
        for name, position, speed in zip(FINGERS, fingers, finger_velocities / self.dt, strict=True):
            data.joint(name).qpos[0] = position
            data.joint(name).qvel[0] = speed
        free = data.joint("object0:joint")
        free.qpos[:] = np.append(block, rotations.euler2quat(rotation))
        linear = (block_velocity + velocity) / self.dt
        angular = rotations.euler2mat(rotation).T @ spin / self.dt  # in the block's own frame
        free.qvel[:] = np.append(linear, angular)
        mujoco_utils.reset_mocap2body_xpos(model, data)
        mujoco.mj_forward(model, data)
        self._check(state, self._get_obs()["observation"])

    def _check(self, state: Floats, restored: Floats) -> None:
        """Refuse a state that the simulator does not give back."""
        stop = 0
        for name, size in PARTS.items():
            part, stop = slice(stop, stop + size), stop + size
            if name == "block rotation":  # any angles are those of some rotation
                continue
            if not np.allclose(restored[part], state[part], rtol=0.0, atol=READ_BACK):
                nearest = ", ".join(f"{value:.4f}" for value in restored[part])
                raise EnvError(
                    f"The state given to reset of {self.task.name} is impossible: with the rest as it is, "
                    f"its {name} (entries {part.start} to {part.stop - 1}) comes to ({nearest})."
                )

    def _place_gripper(self, target: Floats) -> None:
        """Set the arm so that the gripper is at ``target``, and in its initial orientation where possible.

        The orientation weighs less from round to round and nothing in the last, so that a stretched arm
        reaches its place by tilting the gripper. At the initial position the arm is left as it is.
        """
        model, data = self.model, self.data

        def evaluate(angles: Floats) -> tuple[Floats, Floats]:
            data.qpos[self._arm_qpos] = angles
            mujoco.mj_kinematics(model, data)
            frame = data.site_xmat[self._grip].reshape(3, 3)
            turn = np.cross(frame, self._orientation, axis=0).sum(1) / 2
            error = np.append(target - data.site_xpos[self._grip], turn)
            return error, self._jacobian()[:, self._arm_dofs]

        for shoulder in SHOULDER_STARTS:
            angles = self.initial_qpos[self._arm_qpos] + shoulder * np.eye(len(ARM))[0]
            for weight in (1.0, 0.1, 0.0):
                scale = np.repeat((1.0, weight), 3)
                angles = damped_least_squares(evaluate, scale, angles, self._arm_low, self._arm_high)
                error, _ = evaluate(angles)
                if np.linalg.norm(error[:3]) < 1e-8:
                    return

    def _move_gripper(self, velocity: Floats) -> None:
        """Set the arm's joint velocities so that the gripper moves at ``velocity``, if possible straight."""
        qvel, jacobian = self.data.qvel, self._jacobian()
        qvel[self._arm_dofs] = 0.0
        arm = jacobian[:, self._arm_dofs]
        missing = np.append(velocity, np.zeros(3)) - jacobian @ qvel
        qvel[self._arm_dofs] = np.linalg.pinv(arm, rcond=1e-2) @ missing
        qvel[self._arm_dofs] += np.linalg.pinv(arm[:3]) @ (velocity - jacobian[:3] @ qvel)

    def _jacobian(self) -> Floats:
        """How the gripper moves and turns with the joint velocities (6, velocities)."""
        mujoco.mj_comPos(self.model, self.data)
        jacobian = np.zeros((6, self.model.nv))
        mujoco.mj_jacSite(self.model, self.data, jacobian[:3], jacobian[3:], self._grip)
        return jacobian
