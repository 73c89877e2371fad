"""Every bound of the explorer, in one place: what a request may ask for, and what the server keeps."""

from __future__ import annotations

BODY_BYTES = 2**21  # of a JSON body; a file may come along in it
UPLOAD_BYTES = 2**22
DRAIN_BYTES = 2**25  # of a body that is too long are read before the connection is cut
TEXT = 2_000  # characters of an optimizer, a schedule or a spectrum
NODES = 20_000  # of a spectrum given mode by mode
STEPS = 10**9
POINTS = 1_000  # reported steps of a curve
PIECES = 100  # of a best schedule
SCHEDULE_PIECES = 1_000  # of a schedule as data
BATCH_SIZES = 40
OPTIMIZERS = 6
SLOTS = 6  # of an optimizer: SGD has one, momentum one more, each average one more
SETTINGS = 64  # along an axis of a map
REPLICAS = 1_024
SHOWN = 400  # nodes of a spectrum that an answer lists

TIME_LIMIT = 30.0  # seconds, unless `nqm serve --time-limit` says otherwise
MEMORY_BYTES = 2**31  # that a worker may add to what it starts with
WAITING = 256  # requests in the queue

UPLOADS = 32
STORE_BYTES = 2**26  # of uploads, and as much again of answers


def described() -> dict[str, float]:
    """The bounds that a user of the endpoints meets, by name."""
    names = (
        "body_bytes", "upload_bytes", "text", "nodes", "steps", "points", "pieces", "schedule_pieces", "batch_sizes",
        "optimizers", "slots", "settings", "replicas", "uploads",
    )  # fmt: skip
    return {name: globals()[name.upper()] for name in names}
