"""Memory that is shared: other packages' arrays, CUDA IPC, and how bytes move through it."""
