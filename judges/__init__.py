"""Judges whether each sentence of a reply is supported by the documents.

This is an independent library: it imports nothing from ``app`` or ``policies``, opens no database, and uses no HTTP
framework.
"""

import os

# Unless this variable is set first, importing ONNX Runtime starts its telemetry.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
