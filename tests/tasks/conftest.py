import numpy as np
import pytest

from desketch.tasks import load_task, task_from_arrays


@pytest.fixture(scope="session")
def digits():
    return load_task("digits")


@pytest.fixture
def blobs():
    """Three Gaussian blobs in the plane, 90 rows, with a column that names 9 owners."""
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = rng.standard_normal((90, 2)) + 4 * y[:, None]
    return task_from_arrays(x, y, x_test=x[:6], y_test=y[:6], columns={"owner": np.arange(90) // 10}, validation=0.0)
