"""Data sets, partitions and models to train on."""
