"""Every family with every layout, as (name, options); and the two paths that draw them."""

import numpy as np
import pytest

import desketch
from desketch.core import compiled

CASES = {
    "gaussian": ("gaussian", {}),
    "srht": ("srht", {}),
    "srht-block": ("srht", {"block": 16}),
    "srht-fourier": ("srht", {"transform": "fourier"}),
    "ams": ("ams", {}),
    "countsketch": ("countsketch", {}),
    "countsketch-textbook": ("countsketch", {"layout": "textbook"}),
    "sparse1": ("sparse1", {"nnz": 3}),
    "sparse1-textbook": ("sparse1", {"nnz": 3, "layout": "textbook"}),
    "sparse2": ("sparse2", {"nnz": 3}),
    "sparse2-textbook": ("sparse2", {"nnz": 3, "layout": "textbook"}),
    "uniform": ("uniform", {}),
}
PATHS = ["reference", *(["compiled"] if compiled.available() else [])]


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    monkeypatch.setenv("DESKETCH_KERNELS", request.param)
    return request.param


@pytest.fixture
def sketch_of(case, path):
    name, options = case

    def draw(d, b, *fold):
        fitted = {**options, **({"nnz": min(3, b)} if "nnz" in options else {})}
        return desketch.draw(name, d=d, b=b, key=desketch.Key(2023).fold_in(name, *fold), **fitted)

    return draw


@pytest.fixture
def numbers():
    return np.random.default_rng(5).standard_normal
