"""What a Python user calls: `federate` trains a model over clients, every message a small sketch of the update.

    run = ds.federate(model, [ds.Client(x, y) for x, y in parts], loss=cross_entropy, rounds=60)

Models are any `nn.Module` with float32 parameters, clients any data or training loop.  Everything else has the defaults
of the command line: SRHT sketches at 30x, one bit a number both ways, an automatic server step.
"""

from desketch.api.apart import join, serve
from desketch.api.client import Client
from desketch.api.run import Run
from desketch.api.training import federate

__all__ = ["Client", "Run", "federate", "join", "serve"]
