"""What a second process does in the test of simultaneous conversions; light to import, as it is spawned."""

from __future__ import annotations

import logging
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

from dspark.models.gguf_conversion import converted_folder


def convert_and_report(gguf_file: Path, cache_dir: Path, barrier: Barrier, results: Queue) -> None:
    """Put the folder and the number of conversions that this process began into ``results``."""
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())
    logger = logging.getLogger("dspark")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    barrier.wait()
    folder = converted_folder(gguf_file, cache_dir=cache_dir)
    results.put((str(folder), sum(line.startswith("converting") for line in logged)))
