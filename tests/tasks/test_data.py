"""Data: sets that never mix, readers that refuse what is malformed and say where."""

import gzip
import struct

import numpy as np
import pytest
import torch

from desketch.errors import ConfigError
from desketch.tasks import load_task, task_from_arrays


def idx_bytes(array):
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


@pytest.fixture
def idx_folder(tmp_path):
    rng = np.random.default_rng(1)
    for part, n in (("train", 40), ("t10k", 10)):
        images, labels = rng.integers(0, 256, (n, 6, 5)), np.arange(n) % 4
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images)))
        (tmp_path / f"{part}-labels.idx1-ubyte").write_bytes(idx_bytes(labels))
    return tmp_path


def test_digits_are_split_once_and_for_all(digits):
    assert (len(digits.y_train), len(digits.y_val), len(digits.y_test)) == (1294, 144, 359)
    assert digits.input_shape == (1, 8, 8)
    assert digits.classes == 10
    assert digits.x_train.dtype == torch.float32
    assert 0 <= digits.x_train.min() < digits.x_train.max() == 1
    assert torch.equal(load_task("digits", seed=5).x_test, digits.x_test)
    assert not torch.equal(load_task("digits", seed=5).x_val, digits.x_val)


def test_the_three_sets_are_disjoint_and_complete():
    x = np.arange(100, dtype=np.float32).reshape(100, 1)
    task = task_from_arrays(x, np.arange(100) % 2, columns={"row": np.arange(100)})
    parts = [set(part.flatten().tolist()) for part in (task.x_train, task.x_val, task.x_test)]
    assert sum(map(len, parts)) == 100
    assert set.union(*parts) == set(range(100))
    np.testing.assert_array_equal(task.columns["row"], task.x_train[:, 0].numpy())


def test_idx_folders(idx_folder):
    task = load_task(f"idx:{idx_folder}", validation=0.25)
    assert (len(task.y_train), len(task.y_val), len(task.y_test)) == (30, 10, 10)
    assert task.input_shape == (1, 6, 5)
    assert task.classes == 4
    assert task.x_test.max() <= 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not an IDX"),
        (b"\x1f\x8b", "not an IDX"),
        (b"\0\0\x08\x03\0\0", "announces"),
        (b"\0\0\x08\x00", "announces"),
        (idx_bytes(np.zeros((10, 6, 5)))[:-1], "announces"),
        (idx_bytes(np.zeros((10, 6, 5))) + b"\0", "announces"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "announces"),
    ],
)
def test_malformed_idx_files_are_refused(idx_folder, content, reason):
    (idx_folder / "t10k-images-idx3-ubyte.gz").unlink()
    (idx_folder / "t10k-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        load_task(f"idx:{idx_folder}")


def test_missing_files_are_named(idx_folder, tmp_path):
    (idx_folder / "train-labels.idx1-ubyte").unlink()
    with pytest.raises(ConfigError, match="train-labels-idx1-ubyte"):
        load_task(f"idx:{idx_folder}")
    (idx_folder / "train-labels-idx1-ubyte.gz").write_bytes(b"\x1f\x8b\x08broken")
    with pytest.raises(ConfigError, match="cannot read"):
        load_task(f"idx:{idx_folder}")
    for spec in (f"npz:{tmp_path / 'no.npz'}", f"csv:{tmp_path / 'no.csv'}"):
        with pytest.raises(ConfigError, match="cannot read"):
            load_task(spec)


def test_npz_with_and_without_a_test_set(tmp_path):
    x, y = np.random.default_rng(0).integers(0, 256, (50, 3, 4, 4), dtype=np.uint8), np.arange(50) % 5
    np.savez(tmp_path / "a.npz", x=x, y=y, site=y)
    np.savez(tmp_path / "b.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])
    np.savez(tmp_path / "c.npz", x=x)
    a, b = (load_task(f"npz:{tmp_path / name}.npz") for name in "ab")
    assert (len(a.y_test), len(b.y_test)) == (10, 9)
    assert a.input_shape == b.input_shape == (3, 4, 4)
    assert len(a.columns["site"]) == len(a.y_train)
    with pytest.raises(ConfigError, match="needs x and y"):
        load_task(f"npz:{tmp_path / 'c.npz'}")


def test_csv_is_standardised_and_labels_are_numbered(tmp_path):
    rows = [f"{i},{i % 7},{'ham' if i % 3 else 'spam'},site{i % 4}" for i in range(60)]
    path = tmp_path / "mail.csv"
    path.write_text("\n".join(["length,links,kind,site", *rows]))
    task = load_task(f"csv:{path}", label="kind", group="site")
    assert task.classes == 2
    assert task.input_shape == (2,)
    assert set(task.columns["site"]) == {f"site{i}" for i in range(4)}
    torch.testing.assert_close(task.x_train.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(task.x_train.std(0, correction=0), torch.ones(2), atol=1e-5, rtol=0)
    with pytest.raises(ConfigError, match="no column 'sort'"):
        load_task(f"csv:{path}", label="sort")
    with pytest.raises(ConfigError, match="column 'kind' is not numeric"):
        load_task(f"csv:{path}")
    path.write_text("a,b\n1,2\n3\n")
    with pytest.raises(ConfigError, match="row 3: got 1 cells"):
        load_task(f"csv:{path}")
    path.write_text("")
    with pytest.raises(ConfigError, match="header row"):
        load_task(f"csv:{path}")


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        (np.zeros((20, 2)), np.arange(19), "equally long"),
        (np.full((20, 2), np.nan), np.arange(20) % 2, "NaN"),
        (np.zeros((20, 2)), np.zeros(20, int), "1 values"),
        (np.zeros(20), np.arange(20) % 2, "numbers of shape"),
        (np.full((20, 2), "a"), np.arange(20) % 2, "numbers of shape"),
        (np.zeros((5, 2)), np.arange(5) % 2, "too few"),
        (np.zeros((20, 2)), np.where(np.arange(20) > 3, np.nan, 1.0), "not a number"),
    ],
)
def test_bad_arrays_are_refused(x, y, reason):
    with pytest.raises(ConfigError, match=reason):
        task_from_arrays(x, y)


@pytest.mark.parametrize("spec", ["mnist", "idx", "digits:8", "", "png:folder"])
def test_unknown_tasks_are_refused(spec):
    with pytest.raises(ConfigError, match="unknown task"):
        load_task(spec)


def test_labels_keep_small_whole_numbers_and_number_the_rest():
    x = np.zeros((30, 1))
    assert task_from_arrays(x, np.array([0, 1, 3] * 10)).classes == 4
    assert task_from_arrays(x, np.array([-1, 1] * 15)).classes == 2
    assert task_from_arrays(x, np.array(["no", "yes"] * 15)).classes == 2
    assert task_from_arrays(x, np.array([1000, 2000] * 15)).classes == 2
