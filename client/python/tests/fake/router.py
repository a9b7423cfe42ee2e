"""Connects full method names with the fake's functions, and turns Refused into a status."""

from __future__ import annotations

import re

import grpc
from google.protobuf.message_factory import GetMessageClass

from gemmd._wire import methods

from .machine import Refused


def encode(message) -> bytes:
    return message.SerializeToString()


class Router(grpc.GenericRpcHandler):
    """One handler for every method of the services."""

    def __init__(self, fake) -> None:
        self._fake = fake

    def _find(self, name: str):
        """What the fake does for "ListKernels" is its list_kernels."""
        named = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        return getattr(self._fake, named, None) or getattr(self._fake.arming, named)

    def service(self, details):
        name = details.method
        self._fake.metadata[name] = {key: value for key, value in details.invocation_metadata}
        if name == methods.HEALTH:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: self._fake.health)
        rpc = methods.RPCS[name]
        function, kind = self._find(rpc.name), GetMessageClass(rpc.input_type)
        if not rpc.client_streaming and not rpc.server_streaming:

            def answer(request, context):
                return self._guard(name, context, lambda: function(request), request)

            return grpc.unary_unary_rpc_method_handler(answer, kind.FromString, encode)

        def stream(request, context):
            self._fake.calls.append((name, None))
            return self._guard(name, context, lambda: function(request, context), None)

        def generate(request, context):
            self._fake.calls.append((name, None))
            try:
                yield from function(request, context)
            except Refused as refused:
                self._abort(context, refused)

        if not rpc.server_streaming:
            return grpc.stream_unary_rpc_method_handler(stream, kind.FromString, encode)
        make = (
            grpc.stream_stream_rpc_method_handler
            if rpc.client_streaming
            else grpc.unary_stream_rpc_method_handler
        )
        return make(generate, kind.FromString, encode)

    def _guard(self, name, context, work, request):
        faults = self._fake.faults
        if request is not None:
            self._fake.calls.append((name, request))
        try:
            if faults.statuses[name]:
                raise faults.statuses[name].pop(0)
            answer = work()
            if faults.after_running[name]:
                raise faults.after_running[name].pop(0)
            return answer
        except Refused as refused:
            self._abort(context, refused)

    @staticmethod
    def _abort(context, refused: Refused) -> None:
        words = [("gemmd-request-id", "r-7")]
        if refused.reason:
            words.append(("gemmd-reason", refused.reason))
        context.set_trailing_metadata(words)
        context.abort(grpc.StatusCode[refused.code], refused.message)
