"""The memory estimators that people know, reproduced: their laws, their quirks, and what each leaves out."""
