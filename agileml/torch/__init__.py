"""`TorchModule`: trains any PyTorch module data-parallel on the elastic parameter server."""

from agileml.torch.trainer import TorchModule

__all__ = ["TorchModule"]
