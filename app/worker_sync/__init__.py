"""What worker processes tell each other: changes of policies and keys, and which workers serve."""
