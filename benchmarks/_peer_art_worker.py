"""Runs inside the peer's own environment: extracts one stored network and prints what it cost and how well it
did, as JSON."""

from __future__ import annotations

import json
import resource
import signal
import sys
import time
from typing import Any

import numpy as np


def main() -> None:
    from art.attacks.extraction import FunctionallyEquivalentExtraction  # type: ignore[import-not-found]
    from art.estimators import classification  # type: ignore[import-not-found]

    path, seed, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    parts = np.load(path)
    A, u, b, c = (parts[name] for name in ("A", "u", "b", "c"))
    m, d = A.shape
    paid = [0]

    def network(rows: Any) -> Any:
        rows = np.asarray(rows, dtype=np.float64).reshape(-1, d)
        answer = np.maximum(rows @ A.T + b, 0.0) @ u + c
        return np.stack([answer, -answer], axis=1)  # the toolbox wants two outputs at least

    class Counted(classification.BlackBoxClassifierNeuralNetwork):  # type: ignore[misc]
        """float64 answers, every row counted."""

        def predict(self, x: Any, batch_size: int = 128, training_mode: bool = False, **_: Any) -> Any:
            paid[0] += len(np.asarray(x).reshape(-1, d))
            return network(x)

    def too_late(*_: Any) -> None:
        raise TimeoutError(f"not done after {limit} s")

    np.random.seed(seed)  # noqa: NPY002 - the peer draws from the global generator
    target = Counted(network, input_shape=(d,), nb_classes=2, channels_first=False, clip_values=(-1e9, 1e9))
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(limit)
    started = time.perf_counter()
    report: dict[str, Any] = {"error": None, "failure": None}
    try:
        found = FunctionallyEquivalentExtraction(target, num_neurons=m).extract(
            np.random.default_rng(seed).standard_normal((200, d))
        )
        signal.alarm(0)
        rows = np.random.default_rng([9, seed]).standard_normal((2000, d))
        truth = network(rows)
        guess = np.asarray(found.predict(rows), dtype=np.float64).reshape(truth.shape)
        report["error"] = float(np.sqrt(np.mean((guess - truth) ** 2) / np.mean(truth**2)))
    except Exception as failure:
        signal.alarm(0)
        report["failure"] = f"{type(failure).__name__}: {str(failure)[:80]}"
    seconds = time.perf_counter() - started
    print(
        json.dumps(
            report
            | {
                "queries": paid[0],
                "seconds": seconds,
                "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
