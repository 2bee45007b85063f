"""gRPC's interop cases with grpcio: python interop.py ADDRESS DESCRIPTORS

DESCRIPTORS is a google.protobuf.FileDescriptorSet of grpc.testing.TestService. For each case a line
is printed: ok NAME, or failed NAME: REASON.
"""

import queue
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

address, descriptors = sys.argv[1:]
pool = descriptor_pool.DescriptorPool()
with open(descriptors, "rb") as f:
    for file in descriptor_pb2.FileDescriptorSet.FromString(f.read()).file:
        pool.Add(file)


def message(name):
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("grpc.testing." + name))


Empty, Payload, SimpleRequest, EchoStatus = message("Empty"), message("Payload"), message("SimpleRequest"), message("EchoStatus")
InputRequest, OutputRequest, Parameters = message("StreamingInputCallRequest"), message("StreamingOutputCallRequest"), message("ResponseParameters")


class Stub:
    """The calls of a service."""

    def __init__(self, channel, service="TestService"):
        for m in pool.FindServiceByName("grpc.testing." + service).methods:
            requests, responses = m.client_streaming, m.server_streaming
            make = getattr(channel, f"{'stream' if requests else 'unary'}_{'stream' if responses else 'unary'}")
            answer = message_factory.GetMessageClass(m.output_type)
            setattr(self, m.name, make(
                f"/grpc.testing.{service}/{m.name}", request_serializer=lambda r: r.SerializeToString(), response_deserializer=answer.FromString))


# The requests of a stream are those of a queue; None ends it.


def payload(n):
    return Payload(body=bytes(n))


def output(*sizes, **more):
    return OutputRequest(response_parameters=[Parameters(size=n) for n in sizes], **more)


def expect(code, call):
    try:
        call()
    except (grpc.RpcError, grpc.FutureCancelledError) as e:
        got = grpc.StatusCode.CANCELLED if isinstance(e, grpc.FutureCancelledError) else e.code()
        assert got == code, f"{got}, want {code}"
        return e
    raise AssertionError(f"succeeded, want {code}")


def empty_unary(stub):
    assert stub.EmptyCall(Empty()) == Empty()


def large_unary(stub):
    for request, response in ((271828, 314159), (4 << 20, 3 << 20)):
        got = stub.UnaryCall(SimpleRequest(response_size=response, payload=payload(request)))
        assert len(got.payload.body) == response


def client_compressed_unary(stub):
    got = stub.UnaryCall(SimpleRequest(response_size=314159, payload=payload(271828)), compression=grpc.Compression.Gzip)
    assert len(got.payload.body) == 314159


def client_streaming(stub):
    got = stub.StreamingInputCall(InputRequest(payload=payload(n)) for n in (27182, 8, 1828, 45904))
    assert got.aggregated_payload_size == 74922


def server_streaming(stub):
    want = [31415, 9, 2653, 58979, 700_000]
    got = [len(m.payload.body) for m in stub.StreamingOutputCall(output(*want))]
    assert got == want, got


def ping_pong(stub):
    requests = queue.SimpleQueue()
    stream = stub.FullDuplexCall(iter(requests.get, None))
    for want, sent in zip((31415, 9, 2653, 58979), (27182, 8, 1828, 45904)):
        requests.put(output(want, payload=payload(sent)))
        assert len(next(stream).payload.body) == want
    requests.put(None)
    assert list(stream) == []


def empty_stream(stub):
    assert list(stub.FullDuplexCall(iter(()))) == []


def cancel_after_begin(stub):
    requests = queue.SimpleQueue()
    future = stub.StreamingInputCall.future(iter(requests.get, None))
    future.cancel()
    assert future.cancelled()
    assert future.code() == grpc.StatusCode.CANCELLED
    requests.put(None)


def cancel_after_first_response(stub):
    requests = queue.SimpleQueue()
    requests.put(output(31415, payload=payload(27182)))
    stream = stub.FullDuplexCall(iter(requests.get, None))
    assert len(next(stream).payload.body) == 31415
    stream.cancel()
    expect(grpc.StatusCode.CANCELLED, lambda: next(stream))
    requests.put(None)


def timeout_on_sleeping_server(stub):
    requests = queue.SimpleQueue()
    requests.put(OutputRequest(payload=payload(27182)))
    stream = stub.FullDuplexCall(iter(requests.get, None), timeout=0.1)
    expect(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: next(stream))
    requests.put(None)


def custom_metadata(stub):
    first, last = "x-grpc-test-echo-initial", "x-grpc-test-echo-trailing-bin"
    sent = ((first, "test_initial_metadata_value"), (last, b"\xab\xab\xab"))

    def check(call):
        assert dict(call.initial_metadata())[first] == "test_initial_metadata_value"
        assert dict(call.trailing_metadata())[last] == b"\xab\xab\xab"

    check(stub.UnaryCall.with_call(SimpleRequest(response_size=1, payload=payload(1)), metadata=sent)[1])
    stream = stub.FullDuplexCall(iter((output(1),)), metadata=sent)
    assert len(list(stream)) == 1
    check(stream)


def expect_status(stub, text):
    want = EchoStatus(code=2, message=text)
    for call in (
        lambda: stub.UnaryCall(SimpleRequest(response_status=want)),
        lambda: list(stub.FullDuplexCall(iter((OutputRequest(response_status=want),)))),
    ):
        got = expect(grpc.StatusCode.UNKNOWN, call).details()
        assert got == text, repr(got)


def status_code_and_message(stub):
    expect_status(stub, "test status message")


def special_status_message(stub):
    expect_status(stub, "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n")


def unimplemented_method(stub):
    expect(grpc.StatusCode.UNIMPLEMENTED, lambda: stub.UnimplementedCall(Empty()))


def unimplemented_service(_):
    expect(grpc.StatusCode.UNIMPLEMENTED, lambda: Stub(channel, "UnimplementedService").UnimplementedCall(Empty()))


CASES = (
    empty_unary, large_unary, client_compressed_unary, client_streaming, server_streaming, ping_pong, empty_stream, cancel_after_begin,
    cancel_after_first_response, timeout_on_sleeping_server, custom_metadata, status_code_and_message, special_status_message,
    unimplemented_method, unimplemented_service,
)

with grpc.insecure_channel(address) as channel:
    test = Stub(channel)
    for case in CASES:
        try:
            case(test)
            print("ok", case.__name__)
        except Exception as e:  # noqa: BLE001: it is reported
            print(f"failed {case.__name__}: {type(e).__name__} {e}".replace("\n", " "))
