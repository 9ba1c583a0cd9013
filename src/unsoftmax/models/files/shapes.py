"""Do the shapes in a file's header fit together? Asked before any of its arrays is read."""

from __future__ import annotations

from unsoftmax.errors import ModelFileError

__all__ = ["check_shapes"]

_SHAPES: dict[
    str, tuple[str, ...]
] = {  # letters stand for sizes: d is one for the whole file, the others one a head or network
    "W": ("d", "d"),
    "W.left": ("d", "r"),
    "W.right": ("d", "r"),
    "v": ("d", "m"),
    "keys": ("d", "r"),
    "queries": ("d", "r"),
    "values": ("d", "m"),
    "positions.keys": ("places", "r"),
    "positions.queries": ("places", "r"),
    "positions.values": ("places", "m"),
    "skip": ("d", "m"),
    "w0": ("d",),
    "A": ("n", "d"),
    "u": ("n",),
    "b": ("n",),
    "linear": ("d",),
    "c": ("m",),
    "residual": (),
    "clip": ("limits",),
    "first_row": ("none",),
}


def check_shapes(shapes: dict[str, tuple[int, ...]], family: str) -> None:
    """Refuses shapes that no model has. `v`, values and `c` may lack their last letter: single numbers.

    >>> check_shapes({"W": (2, 2), "v": (2,)}, "single-head")
    >>> check_shapes({"W": (2, 2), "v": (2,), "w0": (9,)}, "single-head")
    Traceback (most recent call last):
    ...
    unsoftmax.errors.ModelFileError: tensor 'w0' has shape (9,); to fit the others it must be (2,)
    """
    sizes: dict[str, int] = {}
    order = list(_SHAPES)
    named = {name: _kind(name, family) for name in shapes}
    for name in sorted(shapes, key=lambda name: order.index(named[name])):
        shape, letters = shapes[name], _SHAPES[named[name]]
        if named[name].rpartition(".")[2] in ("v", "values", "skip", "c") and len(shape) == len(letters) - 1:
            letters = letters[:-1]
        owner = name.removesuffix(named[name])
        keys = [letter if letter in ("d", "m") else owner + letter for letter in letters]
        if len(shape) == len(keys):
            for key, size in zip(keys, shape, strict=True):
                sizes.setdefault(key, size)
        expected = tuple(sizes.get(key, 0) for key in keys)
        if shape != expected and named[name] == "v":
            raise ModelFileError(f"v must be ({expected[0]},) or ({expected[0]}, m) to fit W, not {shape}")
        if shape != expected:
            raise ModelFileError(
                f"tensor {name!r} has shape {shape}; to fit the others it must be {expected}"
            )


def _kind(name: str, family: str) -> str:
    """The last part of a name such as 'heads.3.W.left'."""
    for kind in sorted(_SHAPES, key=len, reverse=True):
        if name == kind or name.endswith(f".{kind}"):
            return kind
    raise ModelFileError(f"a {family} file has no tensor {name!r}")
