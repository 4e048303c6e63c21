"""Judges whether each sentence of a reply is supported by the documents.

This is an independent library: it imports nothing from ``app`` or ``policies``, opens no database, and uses no HTTP
framework.
"""

import os

# ONNX Runtime sends telemetry from its import on, unless this is set before.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
