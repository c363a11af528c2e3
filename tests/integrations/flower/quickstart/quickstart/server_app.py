"""The ServerApp."""

import json
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch.utils.data import DataLoader

from quickstart.task import Net, images
from quickstart.task import test as test_fn

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds and keep the result."""
    settings = context.run_config
    torch.manual_seed(0)
    global_model = Net()
    arrays = ArrayRecord(global_model.state_dict())
    strategy = FedAvg(fraction_evaluate=settings["fraction-evaluate"])
    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": settings["learning-rate"]}),
        num_rounds=settings["num-server-rounds"],
        evaluate_fn=global_evaluate,
    )
    kinds = ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp")
    found = {kind: {t: dict(record) for t, record in getattr(result, kind).items()} for kind in kinds}
    Path(settings["results"]).write_text(json.dumps(found))


def global_evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Evaluate the model on data of the server's own."""
    model = Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    loss, accuracy = test_fn(model, DataLoader(images(200, seed=1000), batch_size=50), "cpu")
    return MetricRecord({"accuracy": accuracy, "loss": loss})
