# gemmd on the CPU, without a shell's worth of rights: a build stage, and a stage with what runs.
#
#   docker build -t gemmd .
#   docker run --rm -v /run/gemmd:/run/gemmd -v $PWD/deploy/config:/etc/gemmd:ro gemmd
#
# gemmd listens on loopback and Unix sockets only: share a socket's folder, or the pod's network.

FROM debian:12-slim AS build
WORKDIR /src
COPY scripts/packages.sh scripts/packages.txt scripts/
RUN scripts/packages.sh build && rm -rf /var/lib/apt/lists/*
COPY . .
RUN cmake --preset cpu -DGEMMD_TESTS=OFF \
 && cmake --build build/cpu --target gemmd gemmctl \
 && cmake --install build/cpu --prefix /opt/gemmd --strip

FROM debian:12-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends libgrpc++1.51 libprotobuf32 libabsl20220623 libopenblas0-pthread \
      libisal2 libprometheus-cpp-core1.0 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 8470 --home-dir /run/gemmd --create-home gemmd
COPY --from=build /opt/gemmd /usr/local
COPY scripts/container.textproto /etc/gemmd/gemmd.textproto
USER gemmd
# Readiness: not serving while it drains. SIGTERM drains; give it longer than drain.notice_ms + drain.limit_ms.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s \
  CMD ["gemmctl", "health", "--server", "unix:/run/gemmd/gemmd.sock", "--timeout", "3s"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["gemmd", "--config", "/etc/gemmd/gemmd.textproto"]
