"""What kernels do, by their names: products, attention, memory-bound work; libraries' kernels and our operations."""

from __future__ import annotations

import re
from collections.abc import Collection

GEMM = re.compile(r"gemm|cutlass|xmma|nvjet|Cijk_|wgmma", re.IGNORECASE)
"""Kernels of products, by their names."""
CONVOLUTION = re.compile(r"convolve|conv2d|conv_|_conv|winograd|dgrad|wgrad|cudnn.*(?:fprop|conv)", re.IGNORECASE)
ATTENTION = re.compile(r"flash_?(?:fwd|bwd|attn|attention|::)|fmha|attention|sdpa|mha_(?:fwd|bwd)", re.IGNORECASE)
GRADIENTS = (" wgrad", " dgrad")
PRODUCTS, ATTENTIONS, MEMORY = "products", "attention", "memory-bound"


def category_of(name: str, names: Collection[str]) -> str:
    """What a kernel called *name* does; *names* are all that there are beside it, since a product of this program has
    gradients that are called after it.

    >>> category_of("ampere_bf16_s16816gemm_128x128", ()), category_of("flash_fwd_kernel<Flash_fwd_kernel_traits>", ())
    ('products', 'attention')
    >>> category_of("fc1", {"fc1", "fc1 wgrad"}), category_of("swiglu", {"swiglu"})
    ('products', 'memory-bound')
    """
    if ATTENTION.search(name):
        return ATTENTIONS
    if GEMM.search(name) or CONVOLUTION.search(name) or any(f"{name}{end}" in names for end in GRADIENTS):
        return PRODUCTS
    return MEMORY
