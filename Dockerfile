# One image for the API, workers, the scheduler, migrations and Flower; the command decides.
#
#   docker build -t quire:0.1.0 .
#   docker run --rm -p 127.0.0.1:8750:8750 -v quire:/var/lib/quire quire:0.1.0
#
# Needs BuildKit, the default since Docker 23; with older versions set DOCKER_BUILDKIT=1.
# To use your own package index, add --secret id=pip,src=pip.conf.
# Packages are pinned by hash and installed from wheels, so no compiler is needed.
FROM python:3.13-slim-trixie AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python -m venv /venv
COPY requirements/image.txt requirements/build.lock requirements/
# Google's client has 600 API descriptions (110 MB); Quire uses only the one for Drive.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    /venv/bin/python -m pip install --require-hashes --only-binary :all: -r requirements/image.txt \
    && find /venv/lib/python3.13/site-packages/googleapiclient/discovery_cache/documents \
        -type f ! -name drive.v3.json -delete
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python -m pip install --require-hashes --only-binary :all: -r requirements/build.lock
COPY pyproject.toml README.md LICENSE ./
COPY quire quire
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.13-slim-trixie
RUN groupadd --gid 10001 quire \
    && useradd --uid 10001 --gid quire --home-dir /var/lib/quire --shell /usr/sbin/nologin quire \
    && install -d -o quire -g quire -m 700 /var/lib/quire
COPY --from=build /venv /venv
# A separate layer: an upgrade of Quire with the same requirements is a few megabytes.
RUN --mount=type=bind,from=build,source=/wheels,target=/mnt \
    /venv/bin/python -m pip install --no-deps --no-index --no-cache-dir /mnt/*.whl
COPY --chmod=755 tools/entrypoint.sh /usr/local/bin/quire-entrypoint
RUN install -d /usr/local/lib/quire && ln -s /usr/local/bin/quire-entrypoint /usr/local/lib/quire/quire
ENV PATH=/usr/local/lib/quire:/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    QUIRE_HOME=/var/lib/quire \
    QUIRE_API_HOST=0.0.0.0
USER 10001:10001
WORKDIR /var/lib/quire
VOLUME /var/lib/quire
EXPOSE 8750 5555
# Use `docker stop -t 60`: the timeout must exceed QUIRE_STOP_GRACE (30 s).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=20s --start-period=60s --retries=3 CMD ["quire", "health"]
ENTRYPOINT ["quire-entrypoint"]
CMD ["quire", "up"]
