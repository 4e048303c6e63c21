"""Trains the embedded judge: data, augmentation, the encoder, its combiner, export and model card. Requires the extra
``training`` (torch). No code outside this package imports it. For usage, run ``python -m judges.training --help``.
"""
