"""`session.load`: a checkpoint's tensors become published weights, once."""

from __future__ import annotations

import asyncio  # aio
import contextlib
import os
import random
import time

# sync: from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from gemmd import errors, loads, ops
from gemmd._layers.linear_step import float_bytes
from gemmd._ops import narrowing
from gemmd.aio.buffer import Buffer
from gemmd.checkpoint import open_checkpoint
from gemmd.loads import Loaded, Weight

if TYPE_CHECKING:
    from gemmd.aio.session import Session


async def load(
    session: Session, path: str | os.PathLike[str], wanted: loads.Wanted, options: loads.Options
) -> Loaded[Buffer]:
    """See `session.load`."""
    began = time.perf_counter()
    tensors = await asyncio.to_thread(open_checkpoint, path)
    weights = loads.weights_of(tensors, wanted)
    narrowing.warn_of(**{one.values.name: one.file_dtype for one in weights})
    # In another order each time: several loaders of the same share the work, and seldom meet.
    shuffled = random.sample(weights, len(weights))
    work = loads.Work[Buffer](shuffled, options.progress)
    jobs = max(1, min(options.jobs, len(weights)))

    async def worker() -> None:
        for weight in work:
            with work.stopping_on_failure():
                work.done(weight, *await _obtain(session, weight, options.ttl_s))

    await asyncio.gather(*(worker() for _ in range(jobs)), return_exceptions=True)  # aio
    # sync: with work.stopping_on_failure(), ThreadPoolExecutor(jobs) as pool:
    # sync:     for future in [pool.submit(worker) for _ in range(jobs)]:
    # sync:         future.exception()
    if work.failure is not None:
        with contextlib.suppress(errors.Error):
            await session.delete_buffers(work.loaded.values())
        work.explain()
        raise work.failure
    work.loaded.order([one.values.name for one in weights])
    work.loaded.seconds = time.perf_counter() - began
    return work.loaded


async def _obtain(session: Session, weight: Weight, ttl_s: float | None) -> tuple[Buffer, bool]:
    """The published buffer, and whether it was moved here."""
    digest = await asyncio.to_thread(weight.content_hash)
    if (found := await _find(session, weight, digest)) is not None:
        return found, False
    buffer = await _make(session, weight)
    try:
        return await buffer.publish(weight.name, content_hash=digest, ttl_s=ttl_s), True
    except errors.AlreadyExists:  # another loader was quicker: its copy is the one
        await buffer.delete()
        if (found := await _find(session, weight, digest)) is None:
            raise
        return found, False
    except errors.Error:
        await buffer.delete()
        raise


async def _find(session: Session, weight: Weight, digest: bytes) -> Buffer | None:
    try:
        found = await session.find(weight.name)
    except errors.NotFound:
        return None
    if found.published_name == weight.name and found.content_hash == digest:
        return found
    await found.delete()
    if found.published_name != weight.name:
        raise errors.FailedPrecondition(
            f"{weight.name} is {found.published_name} now, since it has versions; load as a new"
            ' one: prefix="m@2"'
        )
    raise errors.AlreadyExists(
        f'{weight.name} is published with other content; load as a new version (prefix="m@2"), or'
        " unpublish it first"
    )


async def _make(session: Session, weight: Weight) -> Buffer:
    buffer = await session.create_buffer(
        weight.size_bytes,
        shape=weight.shape,
        dtype=weight.dtype,
        label="session.load" if weight.layout is None else weight.layout.label,
    )
    try:
        if weight.to_quantize:
            await _quantize(session, weight, buffer)
        else:
            await session._mover.upload(buffer, await asyncio.to_thread(weight.source), 0)
        scales = weight.scales_behind()
        if scales is not None and weight.layout is not None:
            await session._mover.upload(buffer, float_bytes(scales), weight.layout.scales_at)
    except BaseException:
        await buffer.delete()
        raise
    return buffer


async def _quantize(session: Session, weight: Weight, buffer: Buffer) -> None:
    assert weight.layout is not None  # a matrix: only those are quantised
    staged = await session.create_buffer(
        shape=weight.shape, dtype=weight.source_dtype, device=buffer.device, label="session.load"
    )
    try:
        await session._mover.upload(staged, await asyncio.to_thread(weight.source), 0)
        await session.execute([ops.quantize(staged.tensor(), weight.layout.operand(buffer))])
    finally:
        await staged.delete()
