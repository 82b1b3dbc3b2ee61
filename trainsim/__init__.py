"""Replay a distributed training step without a GPU."""
