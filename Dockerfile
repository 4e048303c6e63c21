# The gateway alone: no tests, no training code and no training data.
# The judge on Ray: docker build --build-arg EXTRAS=ray -t groundlane-judge .

# First stage: the list of dependencies. The next stage copies only the list, so its layer with the installed
# dependencies is reused until the list changes, whatever else changes in pyproject.toml.
FROM python:3.13-slim AS requirements
ARG EXTRAS=mcp,postgres,redis,otel
WORKDIR /src
COPY pyproject.toml ./
RUN python -c "import sys, tomllib; \
project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
extras = [project['optional-dependencies'][extra] for extra in sys.argv[1].split(',')]; \
print(*project['dependencies'], *sum(extras, []), sep='\n')" "${EXTRAS}" > requirements.txt

# Build stage: the package and its dependencies are installed into one folder, which the final stage copies.
FROM python:3.13-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY --from=requirements /src/requirements.txt ./
RUN python -m venv /opt/groundlane && /opt/groundlane/bin/pip install -r requirements.txt
COPY pyproject.toml README.md LICENSE ./
COPY judges judges
COPY policies policies
COPY migrations migrations
COPY app app
COPY groundlane_server groundlane_server
COPY large-judge large-judge
COPY sdk/src/groundlane sdk/src/groundlane
RUN /opt/groundlane/bin/pip install --no-deps . ./large-judge

# Final stage: runs as an unprivileged user. Only the database and the journal in /data and temporary files in /tmp are
# written; everything else may be mounted read-only.
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
