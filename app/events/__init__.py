"""The event log: its rows, the recorder, storage, rollups and queries."""
