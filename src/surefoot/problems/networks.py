"""Networks for studies: ResNet20, a multilayer perceptron, a small convolutional network, a character transformer.

Import this module by name; ``surefoot.problems`` itself stays free of torch. Every class is its own factory: a
``functools.partial`` of it pickles, and draws its initial weights from torch's global generator alone. All of them run
in any memory format (channels_last included) and under bfloat16 autocast.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from surefoot._base.arguments import whole

__all__ = ["MLP", "CharacterTransformer", "ResNet20", "SmallCNN"]


class ResNet20(nn.Module):
    """The residual network of the paper's CIFAR-10 study (Section 5.2): 269,722 parameters for CIFAR-10.

    A 3x3 convolution, then three stages of three basic blocks at 16, 32 and 64 channels, the first block of a later
    stage at stride 2; then the mean over the image and a linear head. Shortcuts have no parameters (option A: every
    second pixel, the new channels padded with zeros). Batch norm follows each convolution. Convolutions and the head
    start from Kaiming's normal distribution, N(0, 2 / fan in).

    >>> sum(parameter.numel() for parameter in ResNet20().parameters())
    269722
    """

    def __init__(self, classes: int = 10, *, channels: int = 3) -> None:
        super().__init__()
        _check_sizes(classes=classes, channels=channels)
        self.stem = _convolution(channels, 16)
        self.norm = nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(*(_Block(*pair) for pair in pairwise([16] * 4 + [32] * 3 + [64] * 3)))
        self.head = nn.Linear(64, classes)
        _draw_weights(self)

    def forward(self, images: Tensor) -> Tensor:
        """The logits (images, classes) of images (images, channels, height, width)."""
        hidden = F.relu(self.norm(self.stem(images)), inplace=True)
        logits: Tensor = self.head(self.blocks(hidden).mean((2, 3)))
        return logits


class MLP(nn.Sequential):
    """A multilayer perceptron with ReLU: inputs of any shape, flattened, through the hidden layers to the logits.

    Weights start from Kaiming's normal distribution N(0, 2 / fan in), biases at torch's default.

    Args:
        inputs: Numbers in one example (64 for the 8x8 digits).
        hidden: Width of each hidden layer; an empty sequence gives a linear classifier.
        classes: Number of logits.

    >>> import torch
    >>> tuple(MLP(64, (32, 32))(torch.zeros(5, 1, 8, 8)).shape)
    (5, 10)
    """

    def __init__(self, inputs: int = 64, hidden: Sequence[int] = (64,), classes: int = 10) -> None:
        _check_sizes(
            inputs=inputs, classes=classes, **{f"hidden[{place}]": width for place, width in enumerate(hidden)}
        )
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise([inputs, *hidden, classes]):
            layers += [nn.Linear(before, after), nn.ReLU(inplace=True)]
        super().__init__(*layers[:-1])
        _draw_weights(self)


class SmallCNN(nn.Module):
    """A small convolutional network for images of any size, from 8x8 digits to 32x32 colour.

    Three 3x3 convolutions at ``width``, 2 ``width`` and 4 ``width`` channels, the later two at stride 2, each with
    batch norm and ReLU; then the mean over the image and a linear head. Weights start from Kaiming's normal
    distribution N(0, 2 / fan in).

    >>> import torch
    >>> tuple(SmallCNN(channels=3, classes=100)(torch.zeros(5, 3, 32, 32)).shape)
    (5, 100)
    """

    def __init__(self, *, channels: int = 1, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        _check_sizes(channels=channels, width=width, classes=classes)
        layers: list[nn.Module] = []
        for before, planes in pairwise([channels, width, 2 * width, 4 * width]):
            convolution = _convolution(before, planes, stride=2 if layers else 1)
            layers += [convolution, nn.BatchNorm2d(planes), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(4 * width, classes)
        _draw_weights(self)

    def forward(self, images: Tensor) -> Tensor:
        """The logits (images, classes) of images (images, channels, height, width)."""
        logits: Tensor = self.head(self.features(images).mean((2, 3)))
        return logits


class CharacterTransformer(nn.Module):
    """A small transformer that predicts the next character at every position, with layer norm before each part.

    Learned embeddings of characters and positions, then ``layers`` blocks of causal self-attention and a perceptron
    of width 4 ``d`` with GELU, a last layer norm and a linear head, not tied to the embedding. Linear layers have
    no biases. Embeddings and weights start from N(0, 0.02²), the last matrix of each residual branch from
    N(0, 0.02² / (2 layers)), so that the sum over all branches starts as small; the first loss is then close to
    log(vocabulary).

    Args:
        vocabulary: Number of different characters.
        d: Width of the residual stream, a multiple of ``heads``.
        context: Longest sequence that can be given.
        layers: Number of blocks.
        heads: Attention heads in each block.

    >>> import torch
    >>> tuple(CharacterTransformer(65)(torch.zeros(2, 64, dtype=torch.long)).shape)
    (2, 64, 65)
    """

    def __init__(self, vocabulary: int, *, d: int = 96, context: int = 64, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        _check_sizes(vocabulary=vocabulary, d=d, context=context, layers=layers, heads=heads)
        if d % heads:
            raise ValueError(f"d must be a multiple of heads, got d={d} and heads={heads}")
        self.context = context
        self.characters = nn.Embedding(vocabulary, d)
        self.positions = nn.Embedding(context, d)
        self.blocks = nn.Sequential(*(_TransformerBlock(d, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:  # all but the layer norms
                last = name.endswith(("project.weight", "contract.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers) if last else 0.02)

    def forward(self, codes: Tensor) -> Tensor:
        """The logits (sequences, length, vocabulary) of the character after each one of codes (sequences, length)."""
        length = codes.shape[-1]
        if length > self.context:
            raise ValueError(f"codes must have at most context={self.context} characters a sequence, got {length}")
        hidden = self.characters(codes) + self.positions.weight[:length]
        logits: Tensor = self.head(self.norm(self.blocks(hidden)))
        return logits


class _Block(nn.Module):
    """Two 3x3 convolutions with batch norm around a shortcut; twice the channels mean stride 2."""

    def __init__(self, before: int, planes: int) -> None:
        super().__init__()
        self.stride = 1 if before == planes else 2
        self.padding = (planes - before) // 2
        self.first = _convolution(before, planes, stride=self.stride)
        self.first_norm = nn.BatchNorm2d(planes)
        self.second = _convolution(planes, planes)
        self.second_norm = nn.BatchNorm2d(planes)

    def forward(self, images: Tensor) -> Tensor:
        hidden = F.relu(self.first_norm(self.first(images)), inplace=True)
        hidden = self.second_norm(self.second(hidden))
        if self.stride > 1:
            images = F.pad(images[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding))
        # In place: the backward pass of batch norm needs its input, not its output.
        hidden += images
        return F.relu(hidden, inplace=True)


class _TransformerBlock(nn.Module):
    """Causal self-attention, then a perceptron, each behind a layer norm and added to the residual stream."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(d)
        self.queries_keys_values = nn.Linear(d, 3 * d, bias=False)
        self.project = nn.Linear(d, d, bias=False)
        self.perceptron_norm = nn.LayerNorm(d)
        self.expand = nn.Linear(d, 4 * d, bias=False)
        self.contract = nn.Linear(4 * d, d, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        sequences, length, d = hidden.shape
        stacked = self.queries_keys_values(self.attention_norm(hidden))
        queries, keys, values = stacked.view(sequences, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        hidden = hidden + self.project(attended.transpose(1, 2).reshape(sequences, length, d))
        added: Tensor = self.contract(F.gelu(self.expand(self.perceptron_norm(hidden))))
        return hidden + added


def _convolution(before: int, planes: int, *, stride: int = 1) -> nn.Conv2d:
    """A 3x3 convolution that keeps the image's size (or halves it), without the bias that batch norm would undo."""
    return nn.Conv2d(before, planes, 3, stride=stride, padding=1, bias=False)


def _draw_weights(model: nn.Module) -> None:
    """Kaiming-normal weights for all convolutions and linear layers."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        whole(name, size, 1)
