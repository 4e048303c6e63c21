"""The gateway: receives HTTP requests, calls upstreams, and stores decisions in SQL."""
