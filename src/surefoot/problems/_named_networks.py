"""Networks that have a name in specs. Data and torch are touched when one of them is asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from surefoot._base.arguments import whole
from surefoot.problems._network import NetworkProblem

if TYPE_CHECKING:
    from torch import Tensor

_OPTIONS = ("name", "device", "autocast", "channels_last", "model_seed", "threads", "evaluated")


def _with_options(function: Callable[..., NetworkProblem]) -> Callable[..., NetworkProblem]:
    """Let the signature tell the options that are handed on to NetworkProblem, so that a wrong one is found."""
    named = {p.name: p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY}
    passed = {name: inspect.signature(NetworkProblem).parameters[name] for name in _OPTIONS}
    vars(function)["__signature__"] = inspect.Signature([*(passed | named).values()])
    return function


@_with_options
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
    from surefoot.problems._image_inputs import ImageInputs

    for name, count in (("rows", rows), ("validation_rows", validation_rows)):
        if count is not None:
            whole(name, count, 1)

    def inputs(split: Any, name: str, count: int | None, is_augmented: bool) -> ImageInputs:
        images = cifar10(split, data)
        if count is not None and count > len(images):
            raise ValueError(f"{name} must lie in 1 … {len(images)}, the images of the {split} split, got {count}")
        return ImageInputs(images, augment=is_augmented, rows=slice(count), channels_last=channels_last)

    return NetworkProblem(
        networks.resnet20,
        inputs("train", "rows", rows, augment),
        validation=inputs("test", "validation_rows", validation_rows, False),
        channels_last=channels_last,
        **{"name": "resnet20", **options},
    )


@_with_options
def digits_mlp(*, hidden: tuple[int, ...] | list[int] = (64,), **options: Any) -> NetworkProblem:
    """A multilayer perceptron on 1,797 handwritten digits of 8 × 8 pixels, which come with the package."""
    from surefoot.problems import networks

    if not isinstance(hidden, tuple | list):
        raise ValueError(f"hidden must be a list of whole numbers of at least 1, got {hidden!r}")
    widths = tuple(whole(f"hidden[{place}]", width, 1) for place, width in enumerate(hidden))
    return _digits(partial(networks.MLP, 64, widths, 10), "digits-mlp", options)


@_with_options
def digits_cnn(**options: Any) -> NetworkProblem:
    """A small convolutional network on 1,797 handwritten digits of 8 × 8 pixels, which come with the package."""
    from surefoot.problems import networks

    return _digits(partial(networks.SmallCNN, channels=1, classes=10), "digits-cnn", options)


def _digits(factory: Any, name: str, options: dict[str, Any]) -> NetworkProblem:
    from surefoot.data import digits

    return NetworkProblem(factory, digits("train"), validation=digits("test"), **{"name": name, **options})


@_with_options
def characters(*, data: str | None = None, context: int = 64, d: int = 96, **options: Any) -> NetworkProblem:
    """A small transformer that predicts the next character of a text.

    Args:
        data: A text file; without one, a text that comes with the package.
        context: Characters that it sees.
        d: Its width.
        **options: Those of :class:`NetworkProblem`.
    """
    from surefoot.data import characters as load
    from surefoot.problems import networks
    from surefoot.problems._inputs import CharacterInputs

    context, d = whole("context", context, 1), whole("d", d, 1)
    text = load(data)
    return NetworkProblem(
        partial(networks.CharacterTransformer, len(text.vocabulary), d=d, context=context),
        CharacterInputs(text.train, context),
        _next_character,
        validation=CharacterInputs(text.validation, context),
        **{"name": "characters", **options},
    )


def _next_character(logits: Tensor, targets: Tensor) -> Tensor:
    from torch.nn.functional import cross_entropy

    return cross_entropy(logits.flatten(0, -2), targets.flatten())
