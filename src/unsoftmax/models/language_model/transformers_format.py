"""Folders of the package `transformers`: config.json and model.safetensors, read and written without it.

Llama: RMSNorm, rotary positions, shared keys, a gated network. GPT-2: LayerNorm, learned positions, biases, a
feed-forward network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.models.files.tensor_files import read_tensors
from unsoftmax.models.files.whole_files import read_json_object, replace_file
from unsoftmax.models.language_model import gpt2_format, llama_format
from unsoftmax.models.language_model.model import LanguageModel
from unsoftmax.models.language_model.parts import LearnedPositions, Rotary

__all__ = ["read_model", "write_folder"]

_READERS = {"llama": llama_format.read, "gpt2": gpt2_format.read}


def read_model(source: Any) -> LanguageModel:
    """The model of a folder, or of a model of `transformers` in memory."""
    if isinstance(source, str | Path):
        config, weights = _from_folder(Path(source))
    elif hasattr(source, "config") and hasattr(source, "state_dict"):
        config = source.config.to_dict()
        weights = {
            name: tensor.detach().cpu().double().numpy() for name, tensor in source.state_dict().items()
        }
    else:
        raise UsageError(
            "pass a LlamaForCausalLM, a GPT2LMHeadModel or a folder with config.json, not "
            f"{type(source).__name__}"
        )
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in _READERS:
        raise UsageError(
            f"the model type {kind!r} is not supported; choose one of {', '.join(sorted(_READERS))}"
        )
    try:
        return _READERS[kind](config, weights)
    except KeyError as error:
        raise ModelFileError(f"a {kind} model lacks {error}") from error
    except UsageError:
        raise
    except (AttributeError, OverflowError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ModelFileError(f"the settings of a {kind} model do not fit its weights: {error}") from error


def write_folder(model: LanguageModel, folder: Path) -> Path:
    """Writes the two files, in float64; returns the folder."""
    from safetensors.numpy import save as serialise

    if isinstance(model.positions, Rotary):
        config, weights = llama_format.write(model)
    elif isinstance(model.positions, LearnedPositions):
        config, weights = gpt2_format.write(model)
    else:
        raise UsageError(
            "a model without positions is neither of Llama's nor of GPT-2's shape; save it with .save"
        )
    folder.mkdir(parents=True, exist_ok=True)
    held = {name: np.ascontiguousarray(array) for name, array in weights.items()}
    replace_file(folder / "model.safetensors", serialise(held, {"format": "pt"}))
    replace_file(folder / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    return folder


def _from_folder(folder: Path) -> tuple[dict[str, Any], Mapping[str, Array]]:
    config = read_json_object(folder / "config.json")
    path = folder / "model.safetensors"
    if not path.is_file():
        raise ModelFileError(f"there is no file {path}; models in several files are not supported")
    return config, read_tensors(path)
