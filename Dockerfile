# Build: the wheel and its dependencies go into one folder, which is all that the second stage takes along.
FROM python:3.13-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/groundlane
COPY pyproject.toml README.md LICENSE ./
COPY judges judges
COPY policies policies
COPY migrations migrations
COPY app app
RUN /opt/groundlane/bin/pip install '.[mcp,postgres,otel]'

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /data --create-home groundlane
COPY --from=build /opt/groundlane /opt/groundlane
ENV PATH=/opt/groundlane/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    GROUNDLANE_DATABASE_URL=sqlite+aiosqlite:////data/groundlane.db
USER groundlane
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["groundlane"]
CMD ["serve", "--host", "0.0.0.0"]
