"""From text to verdicts: is each sentence of a reply supported by the documents given?

A library of its own: it imports nothing of ``app`` or ``policies``, opens no database and knows no HTTP framework.
"""

import os

# ONNX Runtime reports its use to its maker, from the import on, unless it is told not to before that.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
