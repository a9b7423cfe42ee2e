"""adopt on a real daemon: two workers and one copy of a model's weights. Skips without torch."""

import time

import pytest

import gemmd

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("quantize", ["fp8-block", "fp8-row", None])
def test_two_workers_serve_a_model_from_one_copy(client, address, quantize):
    torch = pytest.importorskip("torch")
    from ..layers.models import PATHS, TOKENS, Model, relative_error

    name = f"adopted/{time.time_ns()}"
    options = {"name": name, "quantize": quantize, "min_elements": 0}
    model = Model().eval()
    with torch.device("meta"):
        other = Model().eval()
    with torch.no_grad(), client.session() as session:
        wanted = model(TOKENS)
        adopted = gemmd.adopt(model, session, **options)
        assert sorted(adopted.layers) == sorted(PATHS) and not adopted.left
        y = model(TOKENS)
        assert relative_error(y, wanted) < (0.1 if quantize else 1e-4)
        with gemmd.Client(address) as second, second.session() as session:
            found = gemmd.adopt(other, session, **options)
            other.load_state_dict(model.state_dict(), assign=True)
            assert torch.equal(other(TOKENS), y)
            found.unpublish()
        adopted.unpublish()  # they are gone already
    assert not [one for one in client.published() if one.published_name.startswith(name)]


@pytest.mark.parametrize("quantize", ["fp8-block", None])
@pytest.mark.usefixtures("shared_gpu")
def test_siblings_and_mlps_on_a_gpu_in_a_graph_too(session, quantize):
    torch = pytest.importorskip("torch")
    from ..layers.models import relative_error
    from ..layers.test_adopt_chain import Mlp
    from ..layers.test_siblings import Attention

    blocks = [one for _ in range(3) for one in (Attention(), Mlp())]
    model = torch.nn.Sequential(*blocks).eval().cuda()
    with torch.no_grad():
        x = torch.randn(2, 64, 40, device="cuda")
        wanted = model(x)
        adopted = gemmd.adopt(model, session, quantize=quantize, min_elements=0)
        assert len(adopted) == 3 * 3
        bound = 0.1 if quantize else 0.01
        for _ in range(3):
            assert relative_error(model(x), wanted) < bound
        with torch.inference_mode():
            assert relative_error(model(x), wanted) < bound
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
        for _ in range(10):
            x.copy_(torch.randn_like(x))
            graph.replay()
            assert relative_error(y, model(x)) < bound
    adopted.close()
