"""Every bound of the explorer, in one place: what a request may ask for, and what the server keeps."""

from __future__ import annotations

BODY_BYTES = 2**21  # A JSON body may have this many bytes; a file may come along in it.
UPLOAD_BYTES = 2**22  # A file that is uploaded may have this many bytes.
DRAIN_BYTES = 2**25  # A body that is too long is read up to here before the connection is cut.
TEXT = 2_000  # An optimizer, a schedule or a spectrum may have this many characters.
NODES = 20_000  # A spectrum may have this many nodes.
STEPS = 10**9  # A run may have this many steps.
POINTS = 1_000  # A curve may report this many steps.
PIECES = 100  # A best schedule may have this many pieces.
SCHEDULE_PIECES = 1_000  # A schedule that is given as data may have this many pieces.
BATCH_SIZES = 40  # A sweep may have this many batch sizes.
OPTIMIZERS = 6  # A sweep may have this many optimizers.
SLOTS = 6  # An optimizer may have this many slots: SGD has one, momentum and each average add one.
SETTINGS = 64  # An axis of a map may have this many values.
REPLICAS = 1_024  # A sampled curve may average this many replicas.
SHOWN = 400  # An answer lists this many nodes of a spectrum.

TIME_LIMIT = 30.0  # Seconds that a request may take, unless `nqm serve --time-limit` says otherwise.
MEMORY_BYTES = 2**31  # A worker may add this many bytes to what it starts with.
WAITING = 256  # This many requests may wait for a worker.

UPLOADS = 32  # The server keeps this many files that were uploaded.
STORE_BYTES = 2**26  # The server keeps this many bytes of uploads, and as many of answers.


def described() -> dict[str, float]:
    """The bounds that a user of the endpoints meets, by name."""
    names = (
        "body_bytes", "upload_bytes", "text", "nodes", "steps", "points", "pieces", "schedule_pieces", "batch_sizes",
        "optimizers", "slots", "settings", "replicas", "uploads",
    )  # fmt: skip
    return {name: globals()[name.upper()] for name in names}
