# The exporter's image: Python's slim image, a virtual environment with the locked run-time dependencies, and
# nothing else. It runs as any user, on a read-only disk, without a shell. How to build it: docs/deployment.md.

# A tag to read and a digest that counts: that of the index with all platforms. Change both together.
ARG PYTHON_IMAGE=python:3.13.16-slim-trixie@sha256:bf44cdfcb76cd3b41e879bc058fc37ec5872002ccfde7fcb765e218cde0cd79c

# --- the wheel, by the locked build backend. It is the same for every platform, so it is built on the builder's own.
FROM --platform=$BUILDPLATFORM ${PYTHON_IMAGE} AS wheel
# The time of the files in the wheel, where given; else hatchling's own constant.
ARG SOURCE_DATE_EPOCH
WORKDIR /src
COPY requirements/build.txt requirements/
RUN python -m venv /opt/build \
 && /opt/build/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
      --require-hashes --only-binary :all: --requirement requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY release/readme.py release/
COPY alerts/rules alerts/rules
COPY dashboards/json dashboards/json
COPY exporter/vllm_specdec_exporter exporter/vllm_specdec_exporter
RUN /opt/build/bin/python -m hatchling build -t wheel -d /dist

# --- the virtual environment: wheels only, so that no compiler is needed, and no pip inside.
FROM ${PYTHON_IMAGE} AS environment
COPY requirements/runtime.txt /src/requirements/
RUN python -m venv --without-pip /opt/vllm-specdec-exporter \
 && python -m pip --python /opt/vllm-specdec-exporter/bin/python install --no-cache-dir --disable-pip-version-check \
      --no-compile --require-hashes --only-binary :all: --no-deps --requirement /src/requirements/runtime.txt
COPY --from=wheel /dist /dist
# Byte code by hash and not by time: the same bytes at every build, and never checked against the source. By force,
# for pip itself has imported, and so compiled, a package of the environment.
RUN python -m pip --python /opt/vllm-specdec-exporter/bin/python install --no-cache-dir --disable-pip-version-check \
      --no-compile --no-index --no-deps --find-links /dist vllm-specdec-exporter \
 && /opt/vllm-specdec-exporter/bin/python -m compileall -q -f --invalidation-mode unchecked-hash \
      /opt/vllm-specdec-exporter/lib

# --- what runs.
FROM ${PYTHON_IMAGE}
COPY --from=environment /opt/vllm-specdec-exporter /opt/vllm-specdec-exporter
ENV PATH=/opt/vllm-specdec-exporter/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes can tell that it is not root.
USER 65532:65532
WORKDIR /
EXPOSE 9850
STOPSIGNAL SIGTERM
# Of the exporter, not of vLLM. Kubernetes does not use it.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s --retries=5 CMD ["vllm-specdec-exporter", "health"]
ENTRYPOINT ["vllm-specdec-exporter"]
# Last: they differ between builds of the same content.
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="vllm-specdec-exporter" \
      org.opencontainers.image.description="Prometheus exporter that says whether speculative decoding in vLLM pays off" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/OWNER/vllm-specdec-exporter" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
