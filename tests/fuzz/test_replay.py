"""The seed corpus through every target, and each seed damaged in a few thousand ways, without the fuzzer."""

import random
from pathlib import Path

import pytest
from targets import TARGETS, attempt, seeds

CORPUS = Path(__file__).with_name("corpus")


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_what_the_vectors_make(name):
    assert {path.read_bytes() for path in (CORPUS / name).iterdir()} >= set(seeds()[name])


@pytest.mark.parametrize("name", TARGETS)
def test_some_seeds_are_accepted_and_none_escapes(name):
    accepted = [attempt(name, path.read_bytes()) for path in sorted((CORPUS / name).iterdir())]
    assert any(accepted)


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_seeds_raise_nothing_but_desketch_errors(name):
    rng = random.Random(name)
    kept = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    for _ in range(300):
        data = bytearray(rng.choice(kept))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            match rng.randrange(4):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    data[at] ^= 1 << rng.randrange(8)
                case 2:
                    del data[at:]
                    data += b"\0"
                case 3:
                    data[at:at] = rng.choice(kept)[: rng.randrange(40)]
        attempt(name, bytes(data))


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_lets_a_foreign_exception_through(name, monkeypatch):
    """A target that swallowed everything would find nothing."""

    def broken(data):
        raise KeyError("escaped")

    monkeypatch.setitem(TARGETS, name, broken)
    with pytest.raises(KeyError, match="escaped"):
        attempt(name, b"")
