"""Calls in a captured graph, against torch."""

import torch

from ..layers.models import relative_error


def check_graph(fast, x, own, bound):
    """Captures `fast(x)`, and replays it with other values of x beside `own(x)`."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = fast(x)
    for seed in range(3):
        torch.manual_seed(seed)
        x.normal_()
        graph.replay()
        assert relative_error(y, own(x)) < bound
