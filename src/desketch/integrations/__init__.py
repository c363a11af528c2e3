"""Other engines that move the same bytes: Flower and PyTorch."""
