"""Flower on the bed of mqtt_links.py: seconds and bytes at the interface of its rounds, with desketch and with FedAvg.

``python benchmarks/mqtt_beside.py --data idx:FOLDER`` (root; see netbed.py) fills the part "beside" of
``benchmarks/results/mqtt.json`` and skips what is there.  Model, data, seed, local steps and link are those of the row
"100 kbit/s" there; desketch has its settings too.  FedAvg is stopped after a few rounds, since one takes a quarter of
an hour: its rounds are alike, and what all of them would take is left to whoever multiplies.
"""

from __future__ import annotations

import json
from typing import Any

from mqtt_links import CELLS, LINK, results, write
from thin_wire import arguments, cell, switch_pieces

# method of thin_wire.py -> the most rounds of it
METHODS: dict[str, dict[str, Any]] = {
    "desketch sign1": CELLS["100 kbit/s"][1],
    "fedavg-f16": {"rounds": 3},
    "fedavg": {"rounds": 2},
}


def main() -> None:
    """Fill the missing methods."""
    args = arguments(__doc__, METHODS, limit=3600.0)
    for method in args.methods if args else ():
        if method in results().get("beside", {}):
            continue
        switch_pieces(on=True)
        outcome = cell(method, "100 kbit/s", args.data, args.limit, settings=METHODS[method], link=LINK)
        document = results()
        document.setdefault("beside", {})[method] = outcome
        write(document)
        print(method, json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
