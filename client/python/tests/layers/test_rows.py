"""Row counts that plans are made for, and what a session's layers have in common."""

import gc
import weakref

import numpy as np
import pytest

import gemmd
from gemmd._layers.rows import planned

from ..fake.server import FakeServer


def test_a_plan_has_as_many_rows_or_an_eighth_more():
    for rows in range(1, 20_000):
        more = planned(rows) - rows
        assert 0 <= more <= max(7, rows / 8)
        assert planned(planned(rows)) == planned(rows)


def test_plans_are_few_and_those_of_round_counts_have_no_row_too_many():
    assert len({planned(rows) for rows in range(1, 257)}) == 27
    assert len({planned(rows) for rows in range(1, 4097)}) <= 64
    for rows in (1, 2, 4, 8, *range(16, 65, 8), 96, 128, 160, 192, 256, 320, 384, 512, 1024, 4096):
        assert planned(rows) == rows


@pytest.mark.parametrize("rows", [1, 3, 5, 9, 17, 100])
@pytest.mark.parametrize("share", [False, True])
def test_results_have_as_many_rows_as_x(tmp_path, rows, share):
    server = FakeServer(str(tmp_path), share=share, arms=share)
    random = np.random.default_rng(rows)
    w, x = random.standard_normal((24, 40), "f4"), random.standard_normal((rows, 40), "f4")
    with gemmd.Client(server.target) as client, client.session() as session:
        layer = gemmd.Linear(session, w, quantize=None)
        large = np.full((planned(rows), 40), np.nan, "f4")
        layer(large)  # what it leaves is nobody's
        np.testing.assert_allclose(layer(x), x @ w.T, rtol=1e-4, atol=1e-4)
    server.close()


@pytest.mark.parametrize("share", [False, True])
def test_a_session_that_is_dropped_with_its_layers_goes_at_once(tmp_path, share):
    server = FakeServer(str(tmp_path), share=share, arms=share)
    with gemmd.Client(server.target) as client:
        session = client.session()
        layers = [gemmd.Linear(session, np.ones((24, 40), "f4"), quantize=None) for _ in range(2)]
        for layer in layers:
            layer(np.ones((3, 40), "f4"))
        gone = weakref.ref(session)
        gc.disable()
        try:
            del session, layers, layer
            assert gone() is None
        finally:
            gc.enable()
    server.close()
