"""Networks: sizes, shapes, starts, and that each part does what its name says."""

import functools
import math
import pickle
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from surefoot.problems import networks

FACTORIES: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "resnet20": (networks.ResNet20, torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))),
    "mlp": (networks.MLP, torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))),
    "small_cnn": (networks.SmallCNN, torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))),
    "character_transformer": (
        functools.partial(networks.CharacterTransformer, 65),
        torch.randint(65, (2, 64), generator=torch.Generator().manual_seed(0)),
    ),
}
NAMES = list(FACTORIES)


def seeded(factory: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return factory()


@pytest.mark.parametrize(
    ("model", "inputs", "shape"),
    [
        (networks.ResNet20(100, channels=1), torch.zeros(2, 1, 15, 15), (2, 100)),
        (networks.MLP(12, (), classes=3), torch.zeros(5, 12), (5, 3)),
        (networks.SmallCNN(channels=3, classes=7), torch.zeros(2, 3, 32, 32), (2, 7)),
        (networks.CharacterTransformer(30), torch.zeros(2, 9, dtype=torch.long), (2, 9, 30)),
    ],
)
def test_the_logits_have_the_expected_shape(model: nn.Module, inputs: Tensor, shape: tuple[int, ...]) -> None:
    assert tuple(model(inputs).shape) == shape


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_gets_a_gradient_also_in_bfloat16(name: str) -> None:
    factory, inputs = FACTORIES[name]
    model = seeded(factory)
    exact = model(inputs)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(inputs)
    # 2⁻⁸ is bfloat16's precision; a few roundings in a row and two images in the batch statistics widen it.
    assert torch.linalg.vector_norm(rounded.float() - exact) <= 0.1 * torch.linalg.vector_norm(exact)
    rounded.float().square().mean().backward()
    assert [key for key, value in model.named_parameters() if value.grad is None or not value.grad.any()] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_fixes_the_start_also_of_a_pickled_factory(name: str) -> None:
    factory, inputs = FACTORIES[name]
    again = pickle.loads(pickle.dumps(factory))
    assert torch.equal(seeded(factory, 3)(inputs), seeded(again, 3)(inputs))
    assert not torch.equal(seeded(factory, 3)(inputs), seeded(factory, 4)(inputs))


def plain_block(block: nn.Module, images: Tensor, *, planes: int) -> Tensor:
    """A basic block in training mode, written out with explicit loops over channels and pixels in the shortcut."""

    def normalised(hidden: Tensor) -> Tensor:
        mean = hidden.mean((0, 2, 3), keepdim=True)
        variance = hidden.var((0, 2, 3), keepdim=True, unbiased=False)
        return (hidden - mean) / (variance + 1e-5).sqrt()

    before = images.shape[1]
    stride = 1 if planes == before else 2
    weights = dict(block.named_parameters())
    hidden = normalised(F.conv2d(images, weights["first.weight"], stride=stride, padding=1)).clamp(min=0)
    hidden = normalised(F.conv2d(hidden, weights["second.weight"], padding=1))
    shortcut = torch.zeros_like(hidden)
    for channel in range(before):
        for row in range(hidden.shape[2]):
            for column in range(hidden.shape[3]):
                target = channel + (planes - before) // 2
                shortcut[:, target, row, column] = images[:, channel, stride * row, stride * column]
    return (hidden + shortcut).clamp(min=0)


@pytest.mark.parametrize(("position", "planes", "size"), [(0, 16, 8), (3, 32, 7)])
def test_blocks_and_their_shortcuts_equal_a_plain_reference(position: int, planes: int, size: int) -> None:
    block = seeded(networks.ResNet20).blocks[position]  # type: ignore[index,union-attr]
    before = 16 if position == 0 else planes // 2
    images = torch.randn(4, before, size, size, requires_grad=True)
    reference = plain_block(block, images, planes=planes)
    weights = torch.randn_like(reference)
    output = block(images)
    torch.testing.assert_close(output, reference, rtol=1e-4, atol=1e-5)
    (expected,) = torch.autograd.grad((reference * weights).sum(), images)
    (measured,) = torch.autograd.grad((output * weights).sum(), images)
    torch.testing.assert_close(measured, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["resnet20", "mlp", "small_cnn"])
def test_weights_start_from_kaimings_normal_distribution(name: str) -> None:
    model = seeded(FACTORIES[name][0])
    for key, value in model.named_parameters():
        if value.ndim > 1:
            fan_in = value[0].numel()
            scaled = value.detach().flatten() * math.sqrt(fan_in / 2)
            # Five standard errors of the variance and of the kurtosis of as many standard normal numbers.
            assert abs(scaled.var().item() - 1) < 5 * math.sqrt(2 / scaled.numel()), key
            assert abs(scaled.pow(4).mean().item() - 3) < 5 * math.sqrt(96 / scaled.numel()), key


def test_the_character_model_equals_plain_masked_attention() -> None:
    factory, codes = FACTORIES["character_transformer"]
    model = seeded(factory)
    assert isinstance(model, networks.CharacterTransformer)
    weights = dict(model.named_parameters())
    hidden = weights["characters.weight"][codes] + weights["positions.weight"]
    masked = torch.ones(64, 64).tril() == 0
    for position in range(4):
        block = {key.split(".", 2)[2]: value for key, value in weights.items() if key.startswith(f"blocks.{position}.")}
        normal = F.layer_norm(hidden, (96,))
        parts = (normal @ block["queries_keys_values.weight"].T).chunk(3, dim=-1)
        queries, keys, values = (part.reshape(2, 64, 4, 24).transpose(1, 2) for part in parts)
        scores = (queries @ keys.transpose(-1, -2) / math.sqrt(24)).masked_fill(masked, -math.inf)
        seen = (scores.softmax(-1) @ values).transpose(1, 2).reshape(2, 64, 96)
        hidden = hidden + seen @ block["project.weight"].T
        inner = F.gelu(F.layer_norm(hidden, (96,)) @ block["expand.weight"].T)
        hidden = hidden + inner @ block["contract.weight"].T
    torch.testing.assert_close(model(codes), F.layer_norm(hidden, (96,)) @ weights["head.weight"].T)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: networks.ResNet20(0), "classes must be a whole number of at least 1, got 0"),
        (lambda: networks.MLP(64, "ab"), r"hidden\[0\] must be a whole number of at least 1, got 'a'"),
        (lambda: networks.CharacterTransformer(65, d=97), "multiple of heads, got d=97 and heads=4"),
        (
            lambda: networks.CharacterTransformer(5, context=8)(torch.zeros(1, 9, dtype=torch.long)),
            "at most context=8 characters a sequence, got 9",
        ),
    ],
)
def test_bad_arguments_are_named(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
