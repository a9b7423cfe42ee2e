"""What `gemmd.compile` puts in the place of stretches of a graph: pure but for `block`."""
