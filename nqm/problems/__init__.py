"""What can be trained: the exact quadratic and least squares, and the bounds that hold for both."""
