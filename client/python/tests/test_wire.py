import google_crc32c
import numpy as np
import pytest

import gemmd
from gemmd._wire import programs, wire
from gemmd.v1 import buffer_service_pb2 as pb
from gemmd.v1 import compute_service_pb2 as compute_pb
from gemmd.v1 import types_pb2 as types_pb


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 1 << 20, (1 << 63) - 1])
def test_varints_are_read_back_by_protobuf(value):
    assert pb.DeleteBuffersResponse.FromString(wire.integer(1, value)).freed_bytes == value


@pytest.mark.parametrize("size", [0, 1, 127, 128, 70000])
def test_an_upload_request_written_by_hand_is_the_message(size):
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    written = wire.upload_request(b"s" * 16, b"b" * 16, 12345678901, 0xDEADBEEF, data)
    message = pb.UploadRequest.FromString(written)
    assert message == pb.UploadRequest(
        session_id=b"s" * 16,
        buffer_id=b"b" * 16,
        offset_bytes=12345678901,
        crc32c=0xDEADBEEF,
        data=data,
    )


def test_only_the_first_upload_request_names_session_and_buffer():
    message = pb.UploadRequest.FromString(wire.upload_request(b"", b"", 0, 7, b"xyz"))
    assert (message.session_id, message.buffer_id, message.data) == (b"", b"", b"xyz")


@pytest.mark.parametrize("offset", [0, 1, 1 << 40])
def test_a_download_response_is_read_without_copying_its_data(offset):
    data = b"payload" * 100
    crc = google_crc32c.value(data)
    message = pb.DownloadResponse(offset_bytes=offset, crc32c=crc, data=data).SerializeToString()
    got_offset, got_crc, view = wire.download_response(message)
    assert (got_offset, got_crc, bytes(view)) == (offset, crc, data)
    assert view.obj is message


@pytest.mark.parametrize("message", [b"\x1a\x05ab", b"\x08\xff", b"\x0b"])
def test_a_broken_download_response_is_refused(message):
    with pytest.raises(ValueError):
        wire.download_response(message)


def test_an_execute_response_is_read_without_copying_its_outputs():
    answer = compute_pb.ExecuteResponse(outputs=[b"one" * 100, b"", b"two"], replayed=True)
    answer.report.device = "cpu:0"
    answer.report.ops.add(op="matmul", flops=1e9)
    message = answer.SerializeToString()
    report, outputs, replayed = wire.execute_response(message)
    assert types_pb.ProgramReport.FromString(report) == answer.report
    assert [bytes(output) for output in outputs] == list(answer.outputs) and replayed
    assert all(output.obj is message for output in outputs)


def test_ops_in_pieces_are_the_message():
    x = gemmd.Tensor(b"b" * 16, "f32", (300, 100))
    data = np.arange(30000, dtype="f4").reshape(300, 100)
    program = [gemmd.write(x, data), gemmd.fill(x, 2), gemmd.write(x, data.T.copy().T)]
    message = compute_pb.ExecuteRequest.FromString(b"".join(programs.pieces_of(program)))
    assert [op.WhichOneof("kind") for op in message.ops] == ["write", "fill", "write"]
    assert list(message.ops) == [op.message for op in program]
    assert message.ops[0].write.data == message.ops[2].write.data == data.tobytes()
    assert message.ops[0].write.dst == x.message


def test_a_plans_inputs_in_pieces_are_the_message():
    x = gemmd.Tensor(b"b" * 16, "bf16", (4, 6))
    inputs = [np.ones((4, 6)), np.asfortranarray(np.arange(24).reshape(4, 6))]
    pieces = programs.plan_run(b"p" * 16, [x, x], None, inputs)
    run = compute_pb.RunPlanRequest.FromString(b"".join(programs.run_field(pieces))).run
    assert run.plan_id == b"p" * 16 and len(run.inputs) == 2
    for sent, array in zip(run.inputs, inputs, strict=True):
        assert sent == array.astype(gemmd.bfloat16).tobytes()
