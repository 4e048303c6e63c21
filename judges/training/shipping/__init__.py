"""From a trained run to the files that ship: export, combiner, model card."""
