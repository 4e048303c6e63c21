"""Measures how soon the upstream call ends when a client disconnects before the first token, during the stream, or
while text is held.

    python -m benchmarks.disconnect [--times 20]

Starts a real gateway on loopback with a scripted upstream. Prints the median and maximum time, in milliseconds, from
the client's reset to the end of the upstream connection, and the number of tasks in the gateway at the start and at the
end.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from app.observability import configure_logging
from tests.support.gateways.in_process_gateway import DOCUMENTS, TRUE, chunk, sse
from tests.support.gateways.live_gateway import Gateway
from tests.support.gateways.mock_upstream import Reply

STAGES = {
    "before the first token": ({"hold_head": True}, b""),
    "in mid-stream": ({}, b"25 days"),
    "while text is held": ({}, b'"role"'),
}


def once(gateway: Gateway, stage: str) -> float:
    """Return the number of milliseconds until the upstream connection ends."""
    how, needle = STAGES[stage]
    text = f"{TRUE} And " if stage == "in mid-stream" else "Permanent staff receive "
    pieces = [sse(chunk({"role": "assistant", "content": ""}), chunk({"content": text}), done=False)]
    gateway.upstream.script(Reply(chunks=[*pieces, b": never\n\n"], gated=True, **how))
    body = {"model": "m", "messages": [{"role": "user", "content": "?"}], "documents": DOCUMENTS, "stream": True}
    with gateway.call(body) as call:
        exchange = gateway.upstream.wait_exchange()
        if needle:
            exchange.release()
            call.read_until(needle)
        started = time.monotonic()
        call.abort()
        if not exchange.peer_closed.wait(10):
            raise SystemExit(f"{stage}: the upstream call did not end")
        return (time.monotonic() - started) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    times = parser.parse_args().times
    configure_logging("error", "console")
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(Path(folder)).start()
        try:
            once(gateway, "in mid-stream")
            tasks = gateway.tasks()
            for stage in STAGES:
                taken = [once(gateway, stage) for _ in range(times)]
                print(f"{stage:<24} median {statistics.median(taken):6.1f} ms, maximum {max(taken):6.1f} ms")
            rows = gateway.rows(3 * times + 1)
            print(f"rows: {len(rows)}, cancelled: {sum(row['status'] == 'cancelled' for row in rows)}")
            print(f"tasks: {tasks} at the start, {gateway.tasks()} at the end")
        finally:
            gateway.close()


if __name__ == "__main__":
    main()
