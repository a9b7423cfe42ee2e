"""What layers give to torch on a GPU are tensors like any others, whatever is done with them. Skips
without torch or a GPU.
"""

import gc
import queue
import threading

import pytest

import gemmd

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("shared_gpu")]

try:
    import torch
    from torch import multiprocessing
except ImportError:
    torch = None

N, K = 256, 512
MIB = 1 << 20


def normal(*shape, dtype="float32"):
    return torch.randn(shape, device="cuda").to(getattr(torch, dtype))


def product(x, w):
    return x.double() @ w.double().T


def error(y, exact):
    return float((y.double() - exact).norm() / exact.norm())


def is_near(y, x, w):
    """Of a layer without quantisation."""
    return error(y, product(x, w)) < 0.01


@pytest.fixture
def w():
    torch.manual_seed(0)
    return normal(N, K)


@pytest.fixture
def layer(session, w):
    return gemmd.Linear(session, w, quantize=None)


def test_what_is_added_in_place_with_a_gradient_stays_with_the_callers_result(layer, w):
    """As of an adapter beside a frozen layer. Of a view the memory's next result had it, too."""
    down, up = torch.nn.Linear(K, 8, device="cuda"), torch.nn.Linear(8, N, device="cuda")
    for _ in range(6):
        x, g = normal(4, K), normal(4, N)
        y = layer(x)
        y += up(down(x))
        up.weight.grad = None
        y.backward(g)
        assert error(up.weight.grad, product(g.T, down(x).detach().T)) < 0.01
        del y
    y = layer(normal(4, K))
    assert not y.requires_grad and y.grad_fn is None


def test_a_result_made_without_gradients_may_get_one(layer):
    bias = torch.nn.Parameter(torch.ones(N, device="cuda"))
    for _ in range(4):
        with torch.no_grad():
            y = layer(normal(2, 3, K))
        y += bias
        y.sum().backward()
        del y
    assert (bias.grad == 4 * 6).all()


def test_a_layer_that_was_warmed_up_in_inference_mode_serves_training(layer):
    weight = torch.nn.Parameter(torch.ones(N, device="cuda"))
    with torch.inference_mode():
        layer(normal(4, K))
    for _ in range(4):
        y = layer(normal(4, K))
        (y * weight).sum().backward()
        y.add_(1)


@pytest.mark.parametrize("quantize", [None, "fp8-block"])
def test_types_that_are_sent_alike_share_no_result(session, quantize):
    w = normal(N, K, dtype="bfloat16")
    layer = gemmd.Linear(session, w, quantize=quantize)
    kinds = ["bfloat16", "float16", "float32", "float64", "float8_e4m3fn"]
    with pytest.warns(gemmd.PrecisionWarning):
        for kind in kinds + kinds:
            x = normal(3, K).to(getattr(torch, kind))
            assert error(layer(x), product(x, w)) < 0.07, kind


def test_a_view_that_is_negated_where_it_is_read(layer, w, session):
    for _ in range(3):
        x = torch._neg_view(normal(4, K))
        assert is_near(layer(x), x.clone(), w)
    with pytest.raises(TypeError, match="resolve_neg"):
        session.from_dlpack(x)
    assert is_near(gemmd.Linear(session, torch._neg_view(w), quantize=None)(x), -x, w)


def test_a_result_may_be_resized(layer, w):
    x = normal(4, K)
    for grow in (lambda y: y.resize_(400, N), lambda y: y.untyped_storage().resize_(0)):
        y = layer(x)
        grow(y)
        del y
        others = [torch.zeros(4, N, device="cuda") for _ in range(8)]
        for _ in range(4):
            assert is_near(layer(x), x, w)
        assert not any(one.any() for one in others)


def _means(tensors, taken, sent, answers):
    got = []
    for _ in range(6):
        got.append(tensors.get(timeout=60))
        taken.put(True)
    sent.wait(60)
    answers.put([float(one.mean()) for one in got])
    del got
    answers.put("let go")


def test_a_result_that_another_process_reads_is_not_written_again(session):
    layer = gemmd.Linear(session, torch.eye(K, device="cuda"), quantize=None)
    context = multiprocessing.get_context("spawn")
    tensors, taken, answers = (context.Queue() for _ in range(3))
    sent = context.Event()
    reader = context.Process(target=_means, args=(tensors, taken, sent, answers), daemon=True)
    reader.start()
    try:
        for value in range(6):
            y = layer(torch.full((4, K), float(value), device="cuda"))
            torch.cuda.synchronize()
            tensors.put(y)
            taken.get(timeout=60)
            del y
        for _ in range(6):
            layer(torch.full((4, K), 99.0, device="cuda"))
        torch.cuda.synchronize()
        sent.set()
        assert answers.get(timeout=60) == [0, 1, 2, 3, 4, 5]
        assert answers.get(timeout=60) == "let go"
    finally:
        reader.join(20)
        reader.kill()


def test_row_counts_that_come_and_go_leave_no_memory(session):
    w = normal(4096, K, dtype="bfloat16")
    layer = gemmd.Linear(session, w)
    layer(normal(4, K))
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for m in range(1, 400, 4):
        x = normal(m, K, dtype="bfloat16")
        one, other = layer(x), layer(x)
        assert torch.equal(one, other)
        del one, other, x
    # 32 seats of some 3 MiB at most.
    assert torch.cuda.memory_allocated() - before < 100 * MIB
    layer.close()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before < 4 * MIB


def test_a_call_that_finds_no_room_leaves_the_layer_usable(layer, w):
    x = normal(4, K)
    layer(x)
    for _ in range(2):
        with pytest.raises(gemmd.ResourceExhausted):
            layer(torch.empty(1, K, device="cuda").expand(1 << 31, K))
        assert is_near(layer(x), x, w)


def test_branches_of_a_captured_graph_follow_one_another(session):
    w = normal(2048, 2048, dtype="bfloat16")
    layer = gemmd.Linear(session, w, quantize=None)
    x = [normal(64, 2048, dtype="bfloat16") for _ in range(3)]
    layer(x[0])
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        first = layer(x[0])
        with torch.cuda.stream(side):
            second = layer(x[1])
        third = layer(x[2])
        torch.cuda.current_stream().wait_stream(side)
    for _ in range(20):
        for one in x:
            one.copy_(normal(64, 2048))
        graph.replay()
        for one, y in zip(x, (first, second, third), strict=True):
            assert is_near(y, one, w)


def test_a_graph_is_read_and_written_where_it_is(session):
    """x and results of megabytes: nothing is copied, the graph keeps no more of torch's memory than
    its own layers would take, and another graph may follow where it was.
    """
    w = [normal(N, K, dtype="bfloat16"), normal(K, N, dtype="bfloat16")]
    layers = [gemmd.Linear(session, one, quantize=None) for one in w]
    m = 2 * (1 << 20) // (2 * min(K, N)) + 1

    def captured(call, x):
        call(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        before = torch.cuda.memory_allocated()
        with torch.cuda.graph(graph):
            y = x
            for _ in range(4):
                y = call(y)
        return graph, y, torch.cuda.memory_allocated() - before

    free = []
    for _ in range(8):
        x = normal(m, K, dtype="bfloat16")
        own = captured(lambda x: (x @ w[0].T) @ w[1].T / K, x)
        graph, y, kept = captured(lambda x: layers[1](layers[0](x)) / K, x)
        assert [one._local.of_graphs for one in layers] == [4, 4]  # none of a graph that is gone
        assert kept <= own[2] + MIB
        for _ in range(20):
            x.copy_(normal(m, K))
            graph.replay()
            own[0].replay()
            assert error(y, own[1].double()) < 0.05
        assert len(session._lent) == 0
        del graph, y, own, x
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free.append(torch.cuda.mem_get_info()[0])
    assert free[-1] >= free[0] - 32 * MIB
    for one in layers:
        one.close()


def test_what_goes_by_way_of_the_host_says_so_in_a_capture(session, layer, w):
    x = normal(4, K)
    resident = session.upload(w)
    torch.cuda.synchronize()
    for call in (lambda: session.matmul(x, w.T), lambda: x @ resident.T):
        with pytest.raises(gemmd.FailedPrecondition, match="by way of the host"):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                call()
    assert is_near(layer(x), x, w)
    assert is_near(x @ resident.T, x, w)


@torch.no_grad() if torch else lambda test: test
def test_reduce_overhead_captures_layers(session, w):
    first = gemmd.Linear(session, w, quantize=None)
    second = gemmd.Linear(session, w.T.contiguous(), quantize=None)
    torch._dynamo.reset()
    alone = torch.compile(first, fullgraph=True, mode="reduce-overhead")
    both = torch.compile(
        lambda x: second(torch.relu(first(x))), fullgraph=True, mode="reduce-overhead"
    )
    for _ in range(6):
        x = normal(16, K)
        assert is_near(alone(x), x, w)
        assert error(both(x), torch.relu(product(x, w)) @ w.double()) < 0.01


def test_slots_that_change_hands_under_many_threads_fail_no_run(session):
    """More row counts than a layer keeps armed: slots are given up and taken all the time."""
    layers = [(w, gemmd.Linear(session, w, quantize=None)) for w in (normal(N, K), normal(N, K))]
    torch.cuda.synchronize()
    wrong = queue.SimpleQueue()

    def work(which):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for i in range(60):
                    x = normal(1 + (which * 7 + i) % 40, K)
                    w, layer = layers[(which + i) % 2]
                    y = layer(x) if i % 3 else layer(x.cpu()).cuda()
                    if not is_near(y, x, w):
                        wrong.put((which, i))
        except Exception as failure:
            wrong.put(failure)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(10)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong.empty(), wrong.get()


def test_a_default_device_sees_nothing_of_a_call_like_one_before(layer, w):
    """Each call of torch that such a mode sees takes 2 us more."""

    class Seen(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x, seen = normal(4, K), []
    for _ in range(40):
        layer(x)
    with Seen():
        y = layer(x)
    assert not seen
    assert is_near(y, x, w)
    with torch.device("cpu"):
        y = layer(x)
    assert y.is_cuda and is_near(y, x, w)


def test_large_results_of_several_layers_are_their_callers(session):
    """They lie in memory that the layers share."""
    count, rows = 4, 9000
    layers = [gemmd.Linear(session, torch.eye(N, device="cuda") * n, quantize=None) for n in range(count)]
    held = []
    for turn in range(120):
        x, ys = torch.full((rows, N), float(turn), device="cuda"), []
        for n, layer in enumerate(layers):
            ys.append(layer(x))
        held.append(ys[turn % count])
        for n, y in enumerate(ys):
            assert bool((y == n * turn).all()), (turn, n)
    for turn, y in enumerate(held):
        assert bool((y == turn % count * turn).all()), turn
    assert layers[0]._neighbours.results._kept  # it was no copy


def test_a_session_that_is_collected_during_a_capture_does_not_end_it(client, w):
    """torch collects no garbage before it captures."""
    x = normal(4, K)
    with client.session() as session:
        cycle = [gemmd.Linear(session, w)]
        cycle.append(cycle)
        for _ in range(40):  # results in memory of the layer's, too
            cycle[0](x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        twice = x * 2
        del cycle, session
        gc.collect()
        more = twice + 1
    x.fill_(3)
    graph.replay()
    assert bool((more == 7).all())
