"""Trains the embedded judge: data, augmentation, the encoder, its combiner, export and model card.

Needs the ``training`` extra (torch). Nothing outside this package imports it. ``python -m judges.training --help``.
"""
