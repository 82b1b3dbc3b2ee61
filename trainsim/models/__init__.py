"""What is trained: transformers, their parameters, FLOPs and operations. ``ts.model(name)`` loads one by name."""
