"""Data beyond a message is refused with the way it goes, and ends no queue."""

import asyncio

import numpy as np
import pytest

import gemmd
import gemmd.aio
from gemmd.v1.device_service_pb2 import Limits, ServerInfo


@pytest.mark.parametrize("way", ["execute", "queue", "asyncio"])
def test_data_beyond_a_message_is_told_with_the_way_it_goes(fake, way):
    data = np.zeros(17 << 20, "f4")

    async def awaited():
        async with gemmd.aio.Client(fake.target) as client, client.session() as session:
            held = await session.create_buffer(shape=data.shape, dtype="f32")
            await session.execute([gemmd.write(held, data)])

    def called():
        with gemmd.Client(fake.target) as client, client.session() as session:
            ops = [gemmd.write(session.create_buffer(shape=data.shape, dtype="f32"), data)]
            if way == "execute":
                session.execute(ops)
            with session.queue() as queue:
                queue.submit(ops).result()

    with pytest.raises(gemmd.ResourceExhausted, match=r"than max .*by session\.upload or buffer"):
        asyncio.run(awaited()) if way == "asyncio" else called()


@pytest.mark.parametrize("face", ["sync", "asyncio"])
def test_a_batch_too_large_for_a_message_does_not_end_its_queue(fake, monkeypatch, face):
    limits = Limits(max_message_bytes=4 << 20)
    monkeypatch.setattr(fake, "get_server_info", lambda _: ServerInfo(limits=limits))
    data, refused = np.zeros(1 << 20, "f4"), r"a message holds 4194304; .*session\.upload"

    async def awaited():
        async with gemmd.aio.Client(fake.target) as client, client.session() as session:
            held = await session.create_buffer(shape=data.shape, dtype="f32")
            async with session.queue() as queue:
                before = await queue.submit([gemmd.fill(held, 3)])
                with pytest.raises(gemmd.ResourceExhausted, match=refused):
                    await queue.submit([gemmd.write(held, data)])
                await before
                return await (await queue.submit([gemmd.read(held[:2])]))

    def called():
        with gemmd.Client(fake.target) as client, client.session() as session:
            held = session.create_buffer(shape=data.shape, dtype="f32")
            with session.queue() as queue:
                before = queue.submit([gemmd.fill(held, 3)])
                with pytest.raises(gemmd.ResourceExhausted, match=refused):
                    queue.submit([gemmd.write(held, data)])
                before.result()
                return queue.submit([gemmd.read(held[:2])]).result()

    result = called() if face == "sync" else asyncio.run(awaited())
    np.testing.assert_array_equal(result[0], [3, 3])
