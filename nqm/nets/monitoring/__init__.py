"""The gradient noise scale from inside a training loop: gathered, smoothed with intervals, written, and watched."""
