"""Runs ART's FunctionallyEquivalentExtraction on a saved two-layer network; runs in ART's own environment, with nothing of ours."""

from __future__ import annotations

import json
import sys
import warnings

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
from art.attacks.extraction import FunctionallyEquivalentExtraction  # type: ignore[import-not-found]  # noqa: E402
from art.estimators.classification import BlackBoxClassifierNeuralNetwork  # type: ignore[import-not-found]  # noqa: E402


def main() -> None:
    saved = np.load(sys.argv[1])
    A, b, u, c, seed = saved["A"], saved["b"], saved["u"], float(saved["c"]), int(sys.argv[2])
    readouts = np.stack([u, np.random.default_rng(seed).standard_normal(len(u))], axis=1)  # the attack needs two outputs
    asked = 0

    def network(x: np.ndarray) -> np.ndarray:
        nonlocal asked
        asked += len(x)
        return np.asarray(np.maximum(x @ A.T + b, 0.0) @ readouts + c)

    np.random.seed(seed)  # noqa: NPY002 - the generator that the library draws from
    target = BlackBoxClassifierNeuralNetwork(network, input_shape=(A.shape[1],), nb_classes=2, channels_first=True)
    attack = FunctionallyEquivalentExtraction(target, num_neurons=len(A))
    rng = np.random.default_rng(seed)
    try:
        found = attack.extract(rng.standard_normal((100, A.shape[1])))
        used, x = asked, rng.standard_normal((1000, A.shape[1]))
        gap = float(np.abs(found.predict(x) - network(x))[:, 0].max() / np.abs(network(x))[:, 0].max())
    except Exception as error:
        print(json.dumps({"queries": asked, "error": None, "fault": type(error).__name__}))
        return
    print(json.dumps({"queries": used, "error": gap if np.isfinite(gap) else None, "fault": None}))


if __name__ == "__main__":
    main()
