# gemmd as an image: Debian's slim one, the libraries that gemmd loads, gemmd and gemmctl. Two of them from this file:
#
#   docker build -t gemmd:0.1.0-cuda .                  CUDA devices and the CPU; needs no GPU to build, or to start
#   docker build -t gemmd:0.1.0-cpu --target cpu .      the CPU alone; the CUDA toolkit is not even pulled
#   docker run --rm --read-only --cap-drop ALL --security-opt no-new-privileges \
#     --tmpfs /run/gemmd:uid=8470,gid=8470,mode=750 gemmd:0.1.0-cpu
#
# For the same image another day give DEBIAN and CUDA with their digests, and the commit's time:
# --build-arg SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)". Each RUN is a line of scripts/container-*.sh, which
# tests/deploy/test_image.py runs in a fresh Debian where there is no container engine.

ARG DEBIAN=debian:12-slim
ARG CUDA=nvidia/cuda:13.0.2-devel-ubuntu24.04

# What compiling needs changes less often than the sources: it comes first, and stays cached.
FROM ${DEBIAN} AS packages
WORKDIR /src
COPY scripts/packages.sh scripts/packages.txt scripts/container-build.sh scripts/
RUN scripts/container-build.sh packages

FROM packages AS sources
COPY CMakeLists.txt CMakePresets.json ./
COPY cmake cmake
COPY proto proto
COPY status status
COPY kernels kernels
COPY server server
COPY client client
COPY deploy/tuning deploy/tuning

FROM sources AS build-cpu
ARG SOURCE_DATE_EPOCH=0
RUN scripts/container-build.sh cpu /opt/gemmd

# Only the toolkit's folder is taken from this one, so that both images are compiled by Debian's compiler against Debian's
# libraries, which is what the tests run.
FROM ${CUDA} AS toolkit

FROM sources AS build-cuda
COPY --from=toolkit /usr/local/cuda-13.0 /usr/local/cuda
ARG SOURCE_DATE_EPOCH=0
RUN scripts/container-build.sh cuda /opt/gemmd

FROM ${DEBIAN} AS runtime
ARG SOURCE_DATE_EPOCH=0
COPY scripts/container-runtime.sh /tmp/container-runtime.sh
RUN /tmp/container-runtime.sh && rm /tmp/container-runtime.sh
COPY scripts/container.textproto /etc/gemmd/gemmd.textproto
COPY LICENSE /usr/local/share/doc/gemmd/LICENSE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="gemmd" \
      org.opencontainers.image.description="Matrix multiplication as a service, on Hopper GPUs and CPUs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
WORKDIR /run/gemmd
EXPOSE 8470 8471 8472
# Ready to work: it answers no while gemmd drains. Kubernetes does not look at this; its probes are in deploy/kubernetes.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
  CMD ["gemmctl", "health", "--server", "unix:/run/gemmd/gemmd.sock", "--timeout", "3s"]
# SIGTERM drains: `docker stop --time` longer than the config's drain.notice_ms + drain.limit_ms.
STOPSIGNAL SIGTERM
USER 8470:8470
ENTRYPOINT ["gemmd"]
CMD ["--config", "/etc/gemmd/gemmd.textproto"]

FROM runtime AS cpu
COPY --from=build-cpu /opt/gemmd /usr/local
# A library that is missing is found here and not on the first start.
RUN gemmd --version && gemmctl version

# Which GPUs a container gets is its runtime's business: NVIDIA_VISIBLE_DEVICES is not set here, since an image that says
# "all" gets all of a node's GPUs without asking Kubernetes for one. `utility` is for the clocks and watts of ListDevices. The
# driver's cache of compiled kernels has nothing to keep, since ours come compiled, and no place on a read-only root.
FROM runtime AS cuda
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV CUDA_CACHE_DISABLE=1
COPY --from=build-cuda /opt/gemmd /usr/local
RUN gemmd --version && gemmctl version
