"""From text to verdicts: is each sentence of a reply supported by the documents given?

A library of its own: it imports nothing of ``app`` or ``policies``, opens no database and knows no HTTP framework.
"""
