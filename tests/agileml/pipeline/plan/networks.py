"""Networks of known shapes, timed as 6 operations per multiplication at 12 TFLOP/s in fp32."""

from __future__ import annotations

from agileml.pipeline.profile.model_profile import LayerCost, ModelProfile

_FLOPS = 12e12


def _layer(name: str, macs: float, elements: float, weights: float, batch: int) -> LayerCost:
    seconds = 6 * macs * batch / _FLOPS
    size = 4.0 * elements * batch
    return LayerCost(name, seconds / 3, seconds * 2 / 3, size, size, 4.0 * weights)


def _conv(name: str, shape: tuple[int, int, int], side: int, pooled: int, batch: int) -> LayerCost:
    inputs, outputs, kernel = shape
    weights = inputs * outputs * kernel * kernel
    return _layer(name, weights * side * side, outputs * pooled * pooled, weights + outputs, batch)


def _full(name: str, inputs: int, outputs: int, batch: int) -> LayerCost:
    return _layer(name, inputs * outputs, outputs, inputs * outputs + outputs, batch)


def vgg16(batch: int = 64) -> ModelProfile:
    layers = []
    side, inputs = 224, 3
    for block, (outputs, count) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], 1):
        for i in range(1, count + 1):
            pooled = side // 2 if i == count else side
            layers.append(_conv(f"conv{block}_{i}", (inputs, outputs, 3), side, pooled, batch))
            inputs = outputs
        side //= 2
    layers += [
        _full("fc6", 25088, 4096, batch),
        _full("fc7", 4096, 4096, batch),
        _full("fc8", 4096, 1000, batch),
    ]
    return ModelProfile("vgg16", batch, tuple(layers))


def alexnet(batch: int = 256) -> ModelProfile:
    shapes = [((3, 64, 11), 55, 27), ((64, 192, 5), 27, 13), ((192, 384, 3), 13, 13)]
    shapes += [((384, 256, 3), 13, 13), ((256, 256, 3), 13, 6)]
    layers = [
        _conv(f"conv{i}", shape, side, pooled, batch)
        for i, (shape, side, pooled) in enumerate(shapes, 1)
    ]
    layers += [
        _full("fc6", 9216, 4096, batch),
        _full("fc7", 4096, 4096, batch),
        _full("fc8", 4096, 1000, batch),
    ]
    return ModelProfile("alexnet", batch, tuple(layers))


def resnet50(batch: int = 128, *, stride_first: bool = False) -> ModelProfile:
    """One layer per bottleneck block. Its second convolution halves the image, or with
    `stride_first` its first.
    """
    layers = [_conv("stem", (3, 64, 7), 112, 56, batch)]
    inputs, side = 64, 56
    for stage, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)], 1):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 1 else 1
            before, side = side, side // stride
            outputs = 4 * width
            macs = (
                inputs * width * (side if stride_first else before) ** 2
                + 9 * width * width * side**2
                + width * outputs * side**2
            )
            weights = inputs * width + 9 * width * width + width * outputs
            if block == 0:
                macs += inputs * outputs * side**2
                weights += inputs * outputs
            last = stage == 4 and block == blocks - 1
            elements = outputs if last else outputs * side**2
            layers.append(_layer(f"block{stage}_{block + 1}", macs, elements, weights, batch))
            inputs = outputs
    layers.append(_full("fc", 2048, 1000, batch))
    return ModelProfile("resnet50", batch, tuple(layers))
