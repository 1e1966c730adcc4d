# Two stages: the first installs what the locks name, the second holds that and an interpreter, and no shell.
# For several architectures at once: docker buildx build --platform linux/amd64,linux/arm64 .
#
# A release gives both images with their digests (--build-arg RUNTIME_IMAGE=...@sha256:...); the tags here follow the
# security fixes of their distributions. Both have to have the same minor version of Python, which is PYTHON_VERSION too:
# distroless has only the one of its Debian.
ARG BUILD_IMAGE=docker.io/library/python:3.13-slim-trixie
ARG RUNTIME_IMAGE=gcr.io/distroless/python3-debian13:nonroot

# Runs on the architecture of the machine that builds. What it installs is for TARGETARCH: wheels only, nothing is compiled
# for a processor and nothing of a dependency is run, so no emulation is needed.
FROM --platform=${BUILDPLATFORM} ${BUILD_IMAGE} AS build
ARG TARGETARCH
ARG PYTHON_VERSION=3.13
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src

COPY requirements-build.lock requirements.lock ./
RUN python3 -m venv /build \
 && /build/bin/pip install --quiet --require-hashes --only-binary :all: -r requirements-build.lock
RUN case "${TARGETARCH}" in \
      amd64) machine=x86_64 ;; \
      arm64) machine=aarch64 ;; \
      *) echo "the locked wheels are not for ${TARGETARCH}" >&2; exit 1 ;; \
    esac \
 && /build/bin/pip install --quiet --no-compile --target /opt/ai-scheduler --require-hashes --only-binary :all: \
      --implementation cp --python-version "${PYTHON_VERSION}" \
      --platform "manylinux_2_28_${machine}" --platform "manylinux_2_17_${machine}" --platform "manylinux2014_${machine}" \
      -r requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY aischeduler aischeduler
RUN /build/bin/pip wheel --quiet --no-deps --no-index --no-build-isolation --wheel-dir /wheels . \
 && /build/bin/pip install --quiet --no-compile --no-deps --no-index --target /opt/ai-scheduler /wheels/*.whl
# Commands would start the interpreter of this stage. Bytecode is made here, because nothing can be written where it runs;
# it is not compared with times of files, which layers may change.
RUN rm -r /opt/ai-scheduler/bin \
 && /build/bin/python -m compileall -q --invalidation-mode unchecked-hash -s /opt/ai-scheduler -p /opt/ai-scheduler \
      /opt/ai-scheduler

FROM ${RUNTIME_IMAGE}
ARG RUNTIME_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ai-scheduler" \
      org.opencontainers.image.description="A Kubernetes scheduler for clusters that train and serve AI" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${RUNTIME_IMAGE}"
COPY --from=build /opt/ai-scheduler /opt/ai-scheduler
# Modules come from here and from the interpreter: not from the working directory, nor from a home directory.
ENV PYTHONPATH=/opt/ai-scheduler PYTHONSAFEPATH=1 PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["/usr/bin/python3", "-m", "aischeduler"]
