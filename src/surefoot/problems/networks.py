"""Networks for studies: ResNet20, a multilayer perceptron, a small convolutional network, a character transformer.

Import this module by name; ``surefoot.problems`` itself stays free of torch. Every class is its own factory: a
``functools.partial`` of it pickles, and draws its initial weights from torch's global generator alone, so
``torch.manual_seed`` before the call fixes the initial point. All of them run in any memory format (channels_last
included) and under bfloat16 autocast.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from surefoot._base.arguments import whole

__all__ = ["MLP", "CharacterTransformer", "ResNet", "SmallCNN", "resnet20"]


class ResNet(nn.Module):
    """A residual network for small images, as in the paper's CIFAR-10 study (Section 5.2).

    A 3x3 convolution, then one stage per entry of ``blocks``: that many basic blocks, the first of every later stage at
    stride 2 and twice the channels; then the mean over the image and a linear head. Shortcuts have no parameters
    (option A: every second pixel, the new channels padded with zeros). Batch norm follows each convolution.
    Convolutions and the head start from Kaiming's normal distribution, N(0, 2 / fan in).

    Args:
        blocks: Blocks in each stage.
        width: Channels of the first stage, an even number.
        channels: Channels of the images.
        classes: Number of logits.

    Example:
        >>> import torch
        >>> from surefoot.problems import networks
        >>> model = networks.ResNet(blocks=(1, 1), width=8)
        >>> tuple(model(torch.zeros(2, 3, 16, 16)).shape)
        (2, 10)
    """

    def __init__(
        self, blocks: Sequence[int] = (3, 3, 3), *, width: int = 16, channels: int = 3, classes: int = 10
    ) -> None:
        super().__init__()
        depths = _sizes("blocks", blocks)
        if not depths:
            raise ValueError("blocks must name at least one stage, such as (3, 3, 3), got none")
        _check_sizes(width=width, channels=channels, classes=classes)
        if width % 2:
            raise ValueError(f"width must be even, so that shortcuts can pad both sides alike, got {width}")
        self.stem = _convolution(channels, width)
        self.norm = nn.BatchNorm2d(width)
        layers: list[nn.Module] = []
        before = width
        for stage, depth in enumerate(depths):
            planes = width * 2**stage
            for _ in range(depth):
                layers.append(_Block(before, planes))
                before = planes
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(before, classes)
        _draw_weights(self)

    def forward(self, images: Tensor) -> Tensor:
        """The logits (images, classes) of images (images, channels, height, width)."""
        hidden = F.relu(self.norm(self.stem(images)), inplace=True)
        logits: Tensor = self.head(self.blocks(hidden).mean((2, 3)))
        return logits


def resnet20(classes: int = 10, *, channels: int = 3) -> ResNet:
    """ResNet20: three stages of three blocks at 16, 32 and 64 channels; 269,722 parameters for CIFAR-10.

    Example:
        >>> from surefoot.problems.networks import resnet20
        >>> sum(parameter.numel() for parameter in resnet20().parameters())
        269722
    """
    return ResNet((3, 3, 3), width=16, channels=channels, classes=classes)


class MLP(nn.Module):
    """A multilayer perceptron with ReLU: inputs of any shape, flattened, through the hidden layers to the logits.

    Weights start from Kaiming's normal distribution N(0, 2 / fan in), biases at torch's default.

    Args:
        inputs: Numbers in one example (64 for the 8x8 digits).
        hidden: Width of each hidden layer; an empty sequence gives a linear classifier.
        classes: Number of logits.

    Example:
        >>> import torch
        >>> from surefoot.problems.networks import MLP
        >>> tuple(MLP(64, (32, 32))(torch.zeros(5, 1, 8, 8)).shape)
        (5, 10)
    """

    def __init__(self, inputs: int = 64, hidden: Sequence[int] = (64,), classes: int = 10) -> None:
        super().__init__()
        _check_sizes(inputs=inputs, classes=classes)
        widths = [inputs, *_sizes("hidden", hidden), classes]
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))
        for layer in self.layers:
            nn.init.kaiming_normal_(layer.weight)  # type: ignore[arg-type]  # ModuleList forgets what it holds

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits (examples, classes) of examples of any shape."""
        hidden = inputs.flatten(1)
        *inner, head = self.layers
        for layer in inner:
            hidden = F.relu(layer(hidden), inplace=True)
        logits: Tensor = head(hidden)
        return logits


class SmallCNN(nn.Module):
    """A small convolutional network for images of any size, from 8x8 digits to 32x32 colour.

    Three 3x3 convolutions at ``width``, 2 ``width`` and 4 ``width`` channels, the later two at stride 2, each with
    batch norm and ReLU; then the mean over the image and a linear head. Weights start from Kaiming's normal
    distribution N(0, 2 / fan in).

    Example:
        >>> import torch
        >>> from surefoot.problems.networks import SmallCNN
        >>> tuple(SmallCNN()(torch.zeros(5, 1, 8, 8)).shape)
        (5, 10)
        >>> tuple(SmallCNN(channels=3, classes=100)(torch.zeros(5, 3, 32, 32)).shape)
        (5, 100)
    """

    def __init__(self, *, channels: int = 1, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        _check_sizes(channels=channels, width=width, classes=classes)
        layers: list[nn.Module] = []
        before = channels
        for stage in range(3):
            planes = width * 2**stage
            convolution = _convolution(before, planes, stride=1 if stage == 0 else 2)
            layers += [convolution, nn.BatchNorm2d(planes), nn.ReLU(inplace=True)]
            before = planes
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(before, classes)
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

    Example:
        >>> import torch
        >>> from surefoot.problems.networks import CharacterTransformer
        >>> model = CharacterTransformer(65)
        >>> tuple(model(torch.zeros(2, 64, dtype=torch.long)).shape)
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
        # In place: the backward pass of batch norm needs its input, not its output.
        hidden += self._shortcut(images)
        return F.relu(hidden, inplace=True)

    def _shortcut(self, images: Tensor) -> Tensor:
        if self.stride == 1:
            return images
        kept = images[:, :, :: self.stride, :: self.stride]
        return F.pad(kept, (0, 0, 0, 0, self.padding, self.padding))


class _TransformerBlock(nn.Module):
    """Attention, then a perceptron, each behind a layer norm and added to the residual stream."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(d)
        self.attention = _Attention(d, heads)
        self.perceptron_norm = nn.LayerNorm(d)
        self.expand = nn.Linear(d, 4 * d, bias=False)
        self.contract = nn.Linear(4 * d, d, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(self.attention_norm(hidden))
        added: Tensor = self.contract(F.gelu(self.expand(self.perceptron_norm(hidden))))
        return hidden + added


class _Attention(nn.Module):
    """Causal self-attention: position i sees positions 0 … i."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries_keys_values = nn.Linear(d, 3 * d, bias=False)
        self.project = nn.Linear(d, d, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        sequences, length, d = hidden.shape
        stacked = self.queries_keys_values(hidden).view(sequences, length, 3, self.heads, d // self.heads)
        queries, keys, values = stacked.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        added: Tensor = self.project(attended.transpose(1, 2).reshape(sequences, length, d))
        return added


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


def _sizes(name: str, values: Sequence[int]) -> list[int]:
    if not isinstance(values, Sequence):
        raise TypeError(f"{name} must be a sequence of whole numbers, got {values!r}")
    return [whole(f"{name}[{position}]", value, 1) for position, value in enumerate(values)]
