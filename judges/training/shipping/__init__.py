"""Turns a trained run into the shipped files: export, combiner, model card."""
