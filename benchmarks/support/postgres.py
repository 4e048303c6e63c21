"""A separate PostgreSQL server, for benchmarks that must stop the server."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path


def find_binaries() -> Path:
    """Return the folder with the binaries of the newest installed server. Raises SystemExit if no server is
    installed."""
    found = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    for folder in ([Path(found).parent] if found else []) + folders[::-1]:
        if (folder / "initdb").exists():
            return folder
    raise SystemExit("no PostgreSQL server is installed")


class PostgresServer:
    """A server on loopback with its data in a temporary folder. The server can be started and stopped repeatedly."""

    def __init__(self) -> None:
        self._binaries = find_binaries()
        self._home = Path(tempfile.mkdtemp(prefix="groundlane-postgres-"))
        self._user: str | None = None
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            self._user = "postgres"
            shutil.chown(self._home, self._user, pwd.getpwnam(self._user).pw_gid)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._call("initdb", "-D", str(self._home / "data"), "-U", "groundlane", "-A", "trust", "-E", "UTF8")

    @property
    def url(self) -> str:
        """The database URL for the gateway."""
        return f"postgresql+asyncpg://groundlane@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c max_connections=200 -k {self._home}"
        log = str(self._home / "server.log")
        self._call("pg_ctl", "-D", str(self._home / "data"), "-w", "-t", "120", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server. ``immediate`` simulates a crash: transactions in progress are lost, and committed
        transactions are recovered at the next start."""
        self._call("pg_ctl", "-D", str(self._home / "data"), "-w", "-t", "120", "-m", mode, "stop")

    def close(self) -> None:
        """Stop the server if it is running, and remove its data."""
        if (self._home / "data" / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self._home)

    def _call(self, name: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._binaries / name), *arguments],
            cwd=self._home,
            user=self._user,
            group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
            extra_groups=None if self._user is None else [],
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            check=True,
        )
