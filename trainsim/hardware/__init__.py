"""What the machine is: GPUs, links, clusters as graphs, and the routes through them."""
