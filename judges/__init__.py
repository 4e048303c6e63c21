"""Judges whether each sentence of a reply is supported by the documents.

This is an independent library: it imports nothing from ``app`` or ``policies``, opens no database, and uses no HTTP
framework.
"""

import os

# ONNX Runtime starts to send telemetry when it is imported, unless this is set first.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
