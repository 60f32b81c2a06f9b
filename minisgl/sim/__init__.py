"""The simulator: the same scheduler, on virtual time and without a model."""
