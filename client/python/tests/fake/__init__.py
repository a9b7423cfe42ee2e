"""A gemmd in this process, for tests: real gRPC, numpy for kernels, and faults on demand."""
