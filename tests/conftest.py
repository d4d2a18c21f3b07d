"""What all tests share."""

from dataclasses import replace

import numpy as np
import pytest

import curioplan
import second_device
from curioplan.config import ExploreConfig
from curioplan.envs import make_env
from curioplan.errors import EnvError
from curioplan.presets import preset

second_device.set_up()  # before the first backward pass of the process: those after it know no new device


@pytest.fixture(scope="session")
def graphics() -> None:
    """Leave a test out, and say how to get it, where MuJoCo cannot draw."""
    env = make_env("fetch_push", render_mode="rgb_array")
    try:
        env.reset(seed=0)
        assert np.asarray(env.render()).any()
    except EnvError as error:
        pytest.skip(f"left out: {error}")
    finally:
        env.close()


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run in the small maze with a model and values, none of them good; `trained_run` may be written."""
    run = tmp_path_factory.mktemp("trained") / "maze"
    config = replace(preset("smoke", ExploreConfig), steps=600, warmup_steps=570)
    curioplan.explore("maze_umaze", run, config, progress=False)
    learning = replace(curioplan.learner_config("td3", "smoke"), updates=50, units=16, batch_size=32)
    curioplan.train(run, "td3", learning, progress=False)
    return run


@pytest.fixture
def trained_run(trained, tmp_path):
    """A run of its own for each test, with the same model and values."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_bytes((trained / "run.json").read_bytes())
    for part in ("explore", "values"):
        (folder / part).symlink_to(trained / part)
    return folder
