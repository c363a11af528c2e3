"""A PyTorch app for Flower's FedAvg."""
