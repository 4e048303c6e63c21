# Build: the wheel and its dependencies go into one folder, which is all that the second stage takes along. The image of
# the judge on Ray has more of them: docker build --build-arg EXTRAS=ray -t groundlane-judge .
FROM python:3.13-slim AS build
ARG EXTRAS=mcp,postgres,redis,otel
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/groundlane
COPY pyproject.toml README.md LICENSE ./
COPY judges judges
COPY policies policies
COPY migrations migrations
COPY app app
RUN /opt/groundlane/bin/pip install ".[${EXTRAS}]"

# Run: as a user without rights. Nothing is written but the database and the journal, in /data, and files of the moment in
# /tmp; everything else may be mounted read-only.
FROM python:3.13-slim
RUN groupadd --system --gid 10001 groundlane && \
    useradd --system --uid 10001 --gid 10001 --home-dir /data --create-home groundlane
COPY --from=build /opt/groundlane /opt/groundlane
ENV PATH=/opt/groundlane/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    GROUNDLANE_DATABASE_URL=sqlite+aiosqlite:////data/groundlane.db \
    GROUNDLANE_EVENT_JOURNAL=/data/groundlane.events
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["groundlane"]
CMD ["serve", "--host", "0.0.0.0"]
