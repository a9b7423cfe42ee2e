"""The usual mistakes with gemmd.aio, each with what its error must say."""

import asyncio

import numpy as np
import pytest

import gemmd.aio

W = np.ones((8, 5), "f4")


def aio_linear_called(client):
    return gemmd.aio.Linear(None, W)


def aio_client_in_a_plain_with(client):
    with client:
        pass


def aio_session_in_a_plain_with(client):
    with client.session():
        pass


def aio_session_not_awaited(client):
    return client.session().upload(W)


@pytest.mark.parametrize(
    "mistake, kind, words",
    [
        (aio_linear_called, TypeError, ["await gemmd.aio.Linear.create"]),
        (aio_client_in_a_plain_with, TypeError, ["`async with`"]),
        (aio_session_in_a_plain_with, TypeError, ["`async with`"]),
        (aio_session_not_awaited, AttributeError, ["'upload'", "`await` it first"]),
    ],
)
def test_a_mistake_of_asyncio_is_told_with_the_way_out(fake, mistake, kind, words):
    async def make():
        async with gemmd.aio.Client(fake.target) as client:
            with pytest.raises(kind) as caught:
                mistake(client)
            for word in words:
                assert word in str(caught.value)

    asyncio.run(make())


def test_a_client_of_another_event_loop_says_so(fake):
    client = gemmd.aio.Client(fake.target)
    asyncio.run(client.devices())
    with pytest.raises(RuntimeError, match=r"belongs to another event loop.*make one in each"):
        asyncio.run(client.devices())
