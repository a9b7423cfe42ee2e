"""What the layers are made of: their places in memory, their ops, and where their calls run."""
