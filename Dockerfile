# The first stage installs the locked dependencies, those of the operator included, and the package. The second stage holds
# these files and a Python interpreter; it has no shell. `make images` builds the image for one architecture; the workflow
# image.yaml builds it for amd64 and arm64, and release.yaml publishes that.
#
# The tags of the base images get the security fixes of their distributions; the workflow resolves the tags to digests. Both
# base images and PYTHON_VERSION must have the same minor version of Python. Distroless has only the version of its Debian.
ARG BUILD_IMAGE=docker.io/library/python:3.13-slim-trixie
ARG RUNTIME_IMAGE=gcr.io/distroless/python3-debian13:nonroot

# This stage runs on the architecture of the build machine and installs wheels for TARGETARCH. It compiles no C code and runs
# no code of a dependency, so the build needs no emulation.
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
# The scripts in bin name the interpreter of this stage, which the image does not have. The root filesystem is read-only at
# run time, so the bytecode is compiled here. Layers may change file times, so Python does not compare them.
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
# Python imports from this directory and its own library, never from the working directory or a home directory.
ENV PYTHONPATH=/opt/ai-scheduler PYTHONSAFEPATH=1 PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["/usr/bin/python3", "-m", "aischeduler"]
