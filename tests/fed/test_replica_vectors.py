"""Replica spec v1: the package holds the vectors, whatever instructions the processor has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from desketch.fed import Replica, SketchChannel, make_optimizer
from desketch.keys import Key

VECTORS = Path(__file__).parents[1] / "vectors"
CASES = json.loads((VECTORS / "replica.json").read_text())


def name(case):
    return f"{case['server_optimizer']}-{case['eta_global']}-{case['tiny']}"


@pytest.mark.parametrize("case", CASES, ids=name)
def test_a_replica_holds_the_bits_of_the_vectors_after_every_round(case):
    key = Key.from_bits(bytes.fromhex(case["key"]))
    wire = {part: case[part] for part in ("d", "run", "family", "b", "codec")}
    optimizer = make_optimizer(case["server_optimizer"], eta_global=case["eta_global"], beta=case["beta"])
    w0 = torch.from_numpy(np.frombuffer(bytes.fromhex(case["w0"]), "<f4").copy())
    replica = Replica(w0, optimizer=optimizer, channel=SketchChannel(key=key, along=bool(case["tiny"]), **wire))
    for t, after in enumerate(case["rounds"], start=1):
        replica.apply(t, after["broadcast"] and bytes.fromhex(after["broadcast"]))
        assert optimizer.eta == float.fromhex(after["eta"])
        assert replica.w.numpy().tobytes().hex() == after["w"]
        assert replica.digest() == after["digest"]


def test_the_bits_do_not_depend_on_the_instructions_of_the_processor():
    code = f"import json, sys; sys.path.insert(0, {str(VECTORS)!r}); import make_replica as m"
    code += "; print(json.dumps([m.case(*c) for c in m.CASES]))"
    plain = os.environ | {"ATEN_CPU_CAPABILITY": "default", "DESKETCH_KERNELS": "reference"}
    done = subprocess.run([sys.executable, "-c", code], env=plain, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == CASES
