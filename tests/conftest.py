"""What all tests share."""

import numpy as np
import pytest

from curioplan.envs import make_env
from curioplan.errors import EnvError


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
