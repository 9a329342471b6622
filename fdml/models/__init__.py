"""Local models, losses and how they are trained."""
