"""A record whose event cannot be made."""

from app.events.records import RequestEvent


class UnmakeableRecord:
    def event(self) -> RequestEvent:
        raise RuntimeError("no event")
