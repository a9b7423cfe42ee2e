"""Buffer, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from gemmd import chunks, interop
from gemmd.device_array import DeviceArray, Mapping
from gemmd.handle import Handle
from gemmd.report import Transfer
from gemmd.result import Array
from gemmd.v1 import buffer_service_pb2 as pb

if TYPE_CHECKING:
    from gemmd.aio.session import Session


class Buffer(Handle):
    """As `gemmd.Buffer`; what talks to the server is awaited. `async with` deletes it at the
    end.
    """

    def __init__(self, session: Session, message: pb.Buffer) -> None:
        super().__init__(message)
        self.session = session

    async def upload(self, data: npt.ArrayLike, offset_bytes: int = 0) -> Transfer:
        """As `gemmd.Buffer.upload`. The array must not change until this returns."""
        raw = chunks.as_bytes(np.asarray(data, dtype=self.dtype))
        self.transfer = await self.session.move_up(self, raw, offset_bytes)
        return self.transfer

    async def download(
        self, offset_bytes: int = 0, nbytes: int | None = None, *,
        out: npt.NDArray[Any] | None = None,
    ) -> Array:  # fmt: skip
        """As `gemmd.Buffer.download`. `out` is not to be touched until this returns."""
        raw = self.room(offset_bytes, nbytes, out)
        transfer = await self.session.move_down(self, raw.data, offset_bytes)
        found = self.typed(raw, offset_bytes, nbytes) if out is None else out
        return Array.of(found, transfer=transfer)

    async def array(self) -> npt.NDArray[Any]:
        """As `gemmd.Buffer.array`."""
        return self.typed(await self.session.map(self), 0, None)

    async def device_array(self) -> DeviceArray:
        """As `gemmd.Buffer.device_array`. It has `__dlpack__`; this Buffer, awaited, has not."""
        return self.array_over(
            await self.session.map_device(self)
            if self.needs_mapping()
            else cast(Mapping, self.mapping)
        )

    async def torch(self) -> Any:
        """As `gemmd.Buffer.torch`."""
        if self.memory_kind == "host_shared":
            return interop.as_torch(await self.array())
        return (await self.device_array()).torch()

    async def refresh(self) -> Buffer:
        """Asks the server again."""
        self._describe(await self.session.get_buffer_message(self.buffer_id))
        return self

    async def publish(self, name: str) -> Buffer:
        """As `gemmd.Buffer.publish`."""
        await self.session.publish(self, name)
        return self

    async def delete(self) -> int:
        """As `gemmd.Buffer.delete`."""
        return await self.session.delete_buffers([self])

    async def __aenter__(self) -> Buffer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.delete()
