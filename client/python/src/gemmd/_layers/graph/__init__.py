"""From a graph of torch's compiler to blocks: what nodes compute, where to cut, what is called."""
