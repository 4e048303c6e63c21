"""A process that appends events endlessly and prints the id of each acknowledged event, until it is killed."""

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from app.db.database import Database
from app.events.storage.writer import EventWriter
from app.settings import EventDurability
from tests.app.conftest import make_event


async def main(url: str, journal: str) -> None:
    database = Database(url, durable=True, busy_timeout_s=0.05)
    writer = EventWriter(database, durability=EventDurability.SYNC, journal_path=Path(journal))
    await writer.start()

    async def append(lane: int) -> None:
        number = lane
        while True:
            event = make_event(number)
            await writer.append(event)
            os.write(1, f"{event.request.request_id}\n".encode())
            number += 4

    async with asyncio.TaskGroup() as group:
        for lane in range(4):
            group.create_task(append(lane))


asyncio.run(main(*sys.argv[1:]))
