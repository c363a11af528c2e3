"""What a progress bar says of refused updates."""

from desketch.run.progress import refusals


def test_refusals_take_a_line_a_kind_and_name_a_few_clients():
    refused = {c: f"norm: got {c}, an update has at most 0" for c in range(5)} | {7: "update: not finite", 8: "scale"}
    assert refusals(refused) == [
        "clients 0, 1, 2 and 2 more refused (norm: got 0, an update has at most 0)",
        "client 7 refused (update: not finite)",
        "client 8 refused (scale)",
    ]
    assert refusals({}) == []
