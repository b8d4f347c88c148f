"""python -m tenuto."""
