"""Networks that have a name in specs. Data and torch are touched when one of them is asked for.

Further options of each function are those of :class:`NetworkProblem`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot._base.arguments import whole
from surefoot.problems._network import NetworkProblem

if TYPE_CHECKING:
    from torch import Tensor


def resnet20(
    *,
    data: str | None = None,
    rows: int | None = None,
    validation_rows: int | None = None,
    augment: bool = True,
    channels_last: bool = True,
    **options: Any,
) -> NetworkProblem:
    """ResNet20 on CIFAR-10, with flips and crops, as in the paper's Section 5.

    Args:
        data: Folder of CIFAR-10; by default it is looked for in the data folders, or downloaded.
        rows: Use the first training images only.
        validation_rows: Use the first test images only.
        augment: Flip and crop.
        channels_last: The memory layout.
        **options: Those of :class:`NetworkProblem`: device, autocast, model_seed, threads, evaluated.
    """
    from surefoot.data import cifar10
    from surefoot.problems import networks
    from surefoot.problems._inputs import ImageInputs

    for name, count in (("rows", rows), ("validation_rows", validation_rows)):
        if count is not None:
            whole(name, count, 1)
    return NetworkProblem(
        networks.ResNet20,
        ImageInputs(cifar10("train", data, rows=rows), augment=augment),
        validation=ImageInputs(cifar10("test", data, rows=validation_rows), augment=False),
        channels_last=channels_last,
        **{"name": "resnet20", **options},
    )


def digits_mlp(*, hidden: tuple[int, ...] | list[int] = (64,), **options: Any) -> NetworkProblem:
    """A multilayer perceptron on 1,797 handwritten digits of 8 × 8 pixels, which come with the package."""
    from surefoot.data import digits
    from surefoot.problems import networks

    if not isinstance(hidden, tuple | list):
        raise ValueError(f"hidden must be a list of whole numbers of at least 1, got {hidden!r}")
    widths = tuple(whole(f"hidden[{place}]", width, 1) for place, width in enumerate(hidden))
    factory = partial(networks.MLP, 64, widths, 10)
    return NetworkProblem(factory, digits("train"), validation=digits("test"), **{"name": "digits-mlp", **options})


def digits_cnn(**options: Any) -> NetworkProblem:
    """A small convolutional network on 1,797 handwritten digits of 8 × 8 pixels, which come with the package."""
    from surefoot.data import digits
    from surefoot.problems import networks

    factory, options = networks.SmallCNN, {"name": "digits-cnn", **options}
    return NetworkProblem(factory, digits("train"), validation=digits("test"), **options)


def characters(*, data: str | None = None, context: int = 64, d: int = 96, **options: Any) -> NetworkProblem:
    """A small transformer that predicts the next character of a text, from rows that follow each other.

    Args:
        data: A text file; without one, a text that comes with the package.
        context: Characters that it sees.
        d: Its width.
        **options: Those of :class:`NetworkProblem`.
    """
    from surefoot.data import characters as load
    from surefoot.problems import networks

    context, d = whole("context", context, 1), whole("d", d, 1)
    text = load(data)

    def rows(codes: np.ndarray[Any, Any]) -> tuple[Any, Any]:
        """Windows of the text, and the same one character on."""
        if len(codes) <= context:
            raise ValueError(f"data must have over {context} characters in each part, the context, got {len(codes)}")
        windows = np.lib.stride_tricks.sliding_window_view(codes.astype(np.int64), context + 1)[::context]
        return windows[:, :-1].copy(), windows[:, 1:].copy()

    return NetworkProblem(
        partial(networks.CharacterTransformer, len(text.vocabulary), d=d, context=context),
        rows(text.train),
        _next_character,
        validation=rows(text.validation),
        **{"name": "characters", **options},
    )


def _next_character(logits: Tensor, targets: Tensor) -> Tensor:
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.flatten(0, -2), targets.flatten())
