"""session.load on a real daemon: once moved, found by all, of one version."""

import asyncio
import multiprocessing
import time

import numpy as np
import pytest

import gemmd
import gemmd.aio

from ..test_checkpoint import floats, sharded

pytestmark = pytest.mark.e2e
N, K = 96, 160


@pytest.fixture
def model(tmp_path):
    shards = [
        {
            f"layer.{2 * number + i}.{kind}": (
                ("F32", [N, K], floats(N * K, number))
                if kind == "w"
                else ("F32", [N], floats(N, number))
            )
            for i in range(2)
            for kind in ("w", "bias")
        }
        for number in range(3)
    ]
    sharded(tmp_path, shards)
    return tmp_path


@pytest.fixture
def prefix(client):
    found = f"load-{time.time_ns()}"
    yield found
    with client.session() as session:
        for one in client.published():
            if one.published_name.startswith(found):
                session.unpublish(one.published_name)


def test_a_second_load_moves_nothing(client, model, prefix):
    told = []
    with client.session() as session:
        first = session.load(model, prefix=prefix, progress=lambda *at: told.append(at))
        assert (first.moved, first.found, len(first)) == (12, 0, 12)
        assert first.moved_bytes == 6 * 4 * (N * K + N)
        assert told == sorted(told) and told[-1] == (first.moved_bytes, first.moved_bytes)
        assert np.asarray(first["layer.3.w"].download()).tobytes() == floats(N * K, 1)
        assert list(first)[:2] == ["layer.0.w", "layer.0.bias"]
    with client.session() as session:
        again = session.load(model, prefix=prefix)
        assert (again.moved, again.moved_bytes, again.found) == (0, 0, 12)
        assert "12 were there" in repr(again)


def test_asyncio_finds_what_the_other_face_loaded(client, address, model, prefix):
    with client.session() as session:
        session.load(model, prefix=prefix, quantize="fp8-block")

    async def load():
        async with gemmd.aio.Client(address) as other, other.session() as session:
            return await session.load(model, prefix=prefix, quantize="fp8-block", jobs=3)

    found = asyncio.run(load())
    assert (found.moved, found.found) == (0, 12)


def test_loaded_matrices_are_layers(client, model, prefix, random):
    x = random.standard_normal((5, K), "f4")
    exact = x @ np.frombuffer(floats(N * K, 0), "f4").reshape(N, K).T
    with client.session() as session:
        session.load(model, prefix=f"{prefix}@1", quantize="fp8-block")
        assert client.switch_version(prefix, 1) == 0
        y = np.asarray(gemmd.Linear(session, name=f"{prefix}/layer.0.w")(x))
        assert 0.001 < np.linalg.norm(y - exact) / np.linalg.norm(exact) < 0.08


def _load_beside(address, model, prefix, results):
    with gemmd.Client(address) as client, client.session() as session:
        found = session.load(model, prefix=prefix)
        results.put((found.moved, found.found))


def test_four_workers_make_one_copy(client, address, model, prefix):
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    workers = [
        spawn.Process(target=_load_beside, args=(address, model, prefix, results)) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    told = [results.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert all(moved + found == 12 for moved, found in told)
    assert sum(moved for moved, _ in told) == 12
    names = [one.published_name for one in client.published()]
    assert len([name for name in names if name.startswith(prefix)]) == 12


def test_other_content_is_refused_and_leaves_nothing(client, model, prefix):
    with client.session() as session:
        session.load(model, prefix=prefix, only="layer.2.*")
        held = len(session.buffers())
        with pytest.raises(gemmd.AlreadyExists, match="other content"):
            session.load(model, prefix=prefix, quantize="fp8-block", only="layer.2.w")
        assert len(session.buffers()) == held
        with pytest.raises(gemmd.InvalidArgument, match="version '0'"):
            session.load(model, prefix=f"{prefix}@0")
        with pytest.raises(gemmd.InvalidArgument, match="ttl="):
            session.load(model, prefix=f"{prefix}/t", ttl_s=0)
        with pytest.raises(ValueError, match="ttl_s=-3"):
            session.load(model, prefix=f"{prefix}/t", ttl_s=-3)


def test_a_session_keeps_its_version_through_a_switch(client, model, prefix):
    with client.session() as owner:
        for version in (1, 2):
            owner.load(model, prefix=f"{prefix}@{version}", only="layer.[01].bias")
    client.switch_version(prefix, 1)
    with client.session() as old, client.session() as new:
        first = old.find(f"{prefix}/layer.0.bias")
        assert client.switch_version(prefix, 2) == 1
        assert old.find(f"{prefix}/layer.1.bias").published_name == f"{prefix}@1/layer.1.bias"
        assert new.find(f"{prefix}/layer.1.bias").published_name == f"{prefix}@2/layer.1.bias"
        with pytest.raises(gemmd.FailedPrecondition) as held:
            new.unpublish(first.published_name, unless_held=True)
        assert held.value.reason == "HELD"
