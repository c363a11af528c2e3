"""Table of docs/python.md from benchmarks/results/user_programs.json."""

from __future__ import annotations

from typing import Any

# where a row is also a test of what it trains
TESTS = {
    "tensors": "test_federate.py",
    "dataset": "test_federate.py",
    "dict_batches": "test_federate.py",
    "bert": "test_models.py",
    "gpt2_lora": "test_models.py",
    "regression": "test_federate.py",
    "multi_label": "test_federate.py",
    "residual": "test_models.py",
    "batch_norm": "test_federate.py",
    "own_loop": "test_examples.py",
    "private": "test_examples.py",
}


def rows(result: dict[str, Any]) -> str:
    """Lines and seconds by what the user has, and Flower's for an app of the same kind."""
    head = ["| you have | lines | seconds to the first round | test (`tests/api/`) |", "|---|---:|---:|---|"]
    body = [
        f"| {row['what'].rstrip('.')} | {row['lines']} | {row['seconds']:.1f} | `{TESTS[row['row']]}` |"
        for row in result["rows"]
    ]
    flower = result["flower"]
    last = f"| *Flower 1.41, a PyTorch app of the quickstart's shape* | {flower['lines']} | {flower['seconds']:.1f} | |"
    return "\n".join([*head, *body, last])
