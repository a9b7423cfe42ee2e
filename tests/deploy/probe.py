#!/usr/bin/env python3
"""What the kubelet and Prometheus ask a pod, for a test that runs this within the pod's network.

probe.py grpc PORT     asks health as a gRPC probe does, in plaintext, of the empty service;
                       prints "serving" or what came instead
probe.py metrics PORT  prints what is at /metrics
"""

import sys
import time
import urllib.request

import grpc

SERVING = b"\x08\x01"  # grpc.health.v1.HealthCheckResponse{status: SERVING}


def health(port: str) -> str:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        deadline = time.monotonic() + 60
        while True:
            try:
                answer = check(b"", timeout=5)
                return "serving" if answer == SERVING else repr(answer)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > deadline:
                    return error.code().name
            time.sleep(0.1)


def main() -> None:
    what, port = sys.argv[1:]
    if what == "grpc":
        print(health(port))
    else:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            print(answer.read().decode())


if __name__ == "__main__":
    main()
