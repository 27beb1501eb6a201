"""A PyTorch module whose trained parameters come from servers, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from agileml.errors import BadTrainer, NotFinite, TrainerFailed, torch_module
from agileml.params.layout import Array, Params
from agileml.torch.orders import Unchanged
from agileml.user_code import beginning_of, described

if TYPE_CHECKING:
    import torch


BatchObjective = Callable[["torch.nn.Module", Any], "torch.Tensor"]

_FLOATS = ("torch.float32", "torch.float64")

_Weighted = tuple[str, "Array | None", "torch.Tensor"]
"""A gradient: its parameter, its rows (None: all) and its numbers."""


class TorchNetwork:
    """A module on one device. `trained` are the names of the parameters whose values travel.

    The running statistics of normalization layers travel as well: each clock moves them by the mean
    over its chunks of what a chunk alone would have changed. So do buffers that a layer names in
    `averaged_buffers`, and those in `owned_buffers`, which only the first chunk of the first part
    moves. Frozen parameters and constant buffers are the same on every node and stay.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        trained: frozenset[str],
        device: str,
        loss_scale: float = 1.0,
        *,
        owns_all: bool = False,
    ) -> None:
        """With `owns_all`, the first part owns all buffers that change: it has the whole batch."""
        self.module = module.to(device)
        self._device = device
        self._scale = loss_scale
        self._trained = {
            name: parameter for name, parameter in module.named_parameters() if name in trained
        }
        self._parameters = list(module.parameters())
        self._forms = {
            name: (parameter.dtype, parameter.shape) for name, parameter in self._trained.items()
        }
        self._owned = dict(_declared(module, "owned_buffers"))
        self._moved: dict[str, torch.Tensor] = {}
        batch_norm = torch_module().nn.modules.batchnorm._NormBase
        for path, layer in module.named_modules():
            if isinstance(layer, batch_norm):
                for name, buffer in layer.named_buffers(recurse=False):
                    self._moved[f"{path}.{name}" if path else name] = buffer

        self._moved |= dict(_declared(module, "averaged_buffers"))
        self._moved |= self._owned
        if owns_all:
            self._owned = self._moved
        buffers = {
            name: buffer for name, buffer in module.named_buffers() if name not in self._moved
        }
        self._kept = Unchanged(module, {**dict(module.named_parameters()), **buffers})
        self._plain = {torch_module().float32, torch_module().float64}
        self._zero = torch_module().zeros((), device=device)
        self.sparse = sparse_names(module)
        self._card: CardCopies | None = None
        if self._zero.is_cuda:
            self._card = CardCopies(self._zero.device)

    def arrays(self) -> Params:
        """The values that travel, with at least one axis; statistics that are counts become
        floats."""
        return {
            name: array_of(tensor)
            for name, tensor in [*self._trained.items(), *self._moved.items()]
        }

    def assign(self, read: Callable[[str], Array]) -> None:
        """Takes over the values of the servers."""
        torch = torch_module()
        if self._card is not None:
            self._card.begin()
        for name, tensor in [*self._trained.items(), *self._moved.items()]:
            values = read(name)
            if self._card is not None and tensor.is_cuda:
                self._card.send(name, values, tensor)
            elif (
                tensor.device.type == "cpu"
                and tensor.dtype in self._plain
                and tensor.is_contiguous()
            ):
                np.copyto(tensor.detach().numpy(), values.reshape(tensor.shape))
            else:
                tensor.detach().copy_(torch.from_numpy(np.array(values)).reshape(tensor.shape))

    def gradients(
        self,
        objective: BatchObjective,
        batch: object,
        weight: float,
        where: str,
        *,
        owns: bool = False,
    ) -> Iterator[tuple[str, Array | None, Array]]:
        """Parameters with the rows (None: all) and values of `weight` times the gradient; then
        changes of buffers, of owned ones only if the chunk `owns` them.

        Parameters that the loss does not depend on are left out. No value is -0.0, so that a server
        can tell rows with a gradient of 0 from rows without one.
        """
        self.module.train()
        before = {name: buffer.detach().clone() for name, buffer in self._moved.items()}
        self._kept.begin()
        loss = self._loss(objective, batch, where)

        # Walking through a module takes as long as computing a small one.
        now = dict(self.module.named_parameters())
        self._check_parameters(now, where)
        self._check_kept(now, where)
        gradients = self._differentiate(loss, objective, where)
        if not isfinite(loss.item()):
            raise NotFinite(_diverged(loss.item(), gradients, objective, where))

        weighted = (
            self._weighted(name, gradient, weight, where)
            for name, gradient in gradients.items()
            if gradient is not None
        )

        yield from self._here(weighted)
        for name, old in before.items():
            share = weight if name not in self._owned else float(owns)
            change = (self._moved[name].double() - old.double()) * share
            yield name, None, change.cpu().numpy().reshape(old.shape or 1)

    def mean_losses(
        self, objective: BatchObjective, batches: Iterable[object], where: str
    ) -> list[float]:
        """The losses of batches, as in use: without dropout, and with running statistics."""
        losses = []
        self.module.eval()
        for batch in batches:
            try:
                with torch_module().no_grad():
                    loss = self._loss(objective, batch, where)
            except TrainerFailed:
                # An objective with a gradient penalty computes gradients itself.
                loss = self._loss(objective, batch, where)
            losses.append(loss.item())
            if not isfinite(losses[-1]):
                gradients = self._differentiate(
                    self._loss(objective, batch, where), objective, where
                )
                raise NotFinite(_diverged(losses[-1], gradients, objective, where))

        self._check_parameters(dict(self.module.named_parameters()), where)
        return losses

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All parameters and buffers, as plain PyTorch loads them."""
        return {
            name: tensor.detach().cpu().clone() for name, tensor in self.module.state_dict().items()
        }

    def _loss(self, objective: BatchObjective, batch: object, where: str) -> torch.Tensor:
        given = on_device(batch, self._device)
        try:
            loss: torch.Tensor = objective(self.module, given)
        except BadTrainer:
            raise
        except Exception as error:
            layer = _failing_layer(self.module, objective, given)
            raise TrainerFailed(f"{where}{layer}: {' '.join(described(error).split())}") from error

        if getattr(loss, "numel", int)() != 1:
            shape = (
                f"a tensor of shape {tuple(loss.shape)}"
                if hasattr(loss, "shape")
                else type(loss).__name__
            )
            raise BadTrainer(
                f"{where}: the objective returned {shape}; return the mean loss of the batch, a "
                f"tensor with one number ({beginning_of(objective)})"
            )

        return loss

    def _differentiate(
        self, loss: torch.Tensor, objective: BatchObjective, where: str
    ) -> dict[str, torch.Tensor | None]:
        if not loss.requires_grad:
            raise BadTrainer(
                f"{where}: the loss does not depend on any trained parameter "
                f"({beginning_of(objective)})"
            )

        self._forget_gradients()
        # Not `autograd.grad`: with that, layers under a reentrant checkpoint of activations have no
        # gradient.
        torch_module().autograd.backward(loss if self._scale == 1 else loss * self._scale)
        gradients = {name: parameter.grad for name, parameter in self._trained.items()}
        self._forget_gradients()
        return gradients

    def _forget_gradients(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def _check_parameters(self, now: Mapping[str, torch.Tensor], where: str) -> None:
        for name, parameter in self._trained.items():
            if (
                now.get(name) is not parameter
                or (parameter.dtype, parameter.shape) != self._forms[name]
            ):
                became = _form(now[name].dtype, now[name].shape) if name in now else "nothing"
                raise BadTrainer(
                    f"{where}, parameter {name!r}: the module replaced it "
                    f"({_form(*self._forms[name])} became"
                    f" {became}); {beginning_of(self.module.forward)}"
                )

    def _check_kept(self, now: Mapping[str, torch.Tensor], where: str) -> None:
        name = self._kept.changed(now)
        if name is None:
            return

        forward = beginning_of(self.module.forward)
        if name in self._trained:
            problem = "only its optimizer can, on the servers"
        elif name in now:
            problem = "the optimizer does not train it, so other nodes would not see the change"
        else:
            problem = (
                "other nodes would not see the change: name it in the layer's averaged_buffers "
                "(the mean over all"
                " chunks of a batch) or owned_buffers (as the first chunk changes it)"
            )

        kind = "buffer" if name in dict(self.module.named_buffers()) else "parameter"
        raise BadTrainer(f"{where}, {kind} {name!r}: the module changed it; {problem} ({forward})")

    def _here(self, weighted: Iterable[_Weighted]) -> Iterator[tuple[str, Array | None, Array]]:
        """The gradients in this computer's memory."""
        if self._card is None:
            for name, rows, gradient in weighted:
                yield name, rows, gradient.cpu().numpy().reshape(gradient.shape or 1)
            return
        on_card = list(weighted)
        fetched = self._card.fetched(gradient for _, _, gradient in on_card)
        for (name, rows, gradient), values in zip(on_card, fetched, strict=True):
            yield name, rows, values.reshape(gradient.shape or 1)

    def _weighted(self, name: str, gradient: torch.Tensor, weight: float, where: str) -> _Weighted:
        if gradient.is_sparse != (name in self.sparse):
            if gradient.is_sparse:
                problem = "its gradient is sparse, but it is not the weight of an Embedding"
            else:
                problem = (
                    "the embedding has sparse=True, but its weight is used elsewhere, too, which makes its gradient"
                    " dense; use sparse=False"
                )
            raise BadTrainer(f"{where}, parameter {name!r}: {problem}")

        rows = None
        if gradient.is_sparse:
            gradient = gradient.coalesce()
            rows = gradient.indices()[0].cpu().numpy()
            gradient = gradient.values()

        # In one pass, and in place: the gradient is as large as the parameter. Adding 0 makes 0.0
        # of -0.0.
        torch_module().add(self._zero, gradient, alpha=weight / self._scale, out=gradient)
        return name, rows, gradient


def check_hooks(module: torch.nn.Module) -> None:
    """BadTrainer names the first parameter with a hook, which would see the gradient of a part, not
    of a batch.
    """
    for name, parameter in module.named_parameters():
        if getattr(parameter, "_backward_hooks", None):
            raise BadTrainer(
                f"parameter {name!r} has a hook for its gradient (register_hook), which would run "
                "for each part of a"
                " batch instead of the whole; remove it, or use parts=1 and no microbatch, and a "
                "function that makes the module"
            )


def check_module(module: torch.nn.Module) -> torch.nn.Module:
    """The module, if its parameters can be trained; BadTrainer names the first that cannot."""
    torch = torch_module()
    for name, parameter in module.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            raise BadTrainer(
                f"parameter {name!r} has no shape yet: pass a batch through the module when you "
                "make it"
            )
        if parameter.requires_grad and str(parameter.dtype) not in _FLOATS:
            raise BadTrainer(
                f"parameter {name!r} holds {parameter.dtype}; train in float32 or float64"
                " (torch.autocast in the objective computes in less)"
            )
        if getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise BadTrainer(
                f"parameter {name!r} has a hook for its accumulated gradient, which is accumulated "
                "on the servers; remove it"
            )

    return module


def sparse_names(module: torch.nn.Module) -> frozenset[str]:
    """The parameters whose gradients are sparse."""
    return frozenset(
        f"{path}.weight" if path else "weight"
        for path, layer in module.named_modules(remove_duplicate=True)
        if getattr(layer, "sparse", False) is True and hasattr(layer, "weight")
    )


def _declared(module: torch.nn.Module, attribute: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The buffers that layers name in an attribute; BadTrainer if a name is wrong."""
    for path, layer in module.named_modules():
        buffers = dict(layer.named_buffers(recurse=False))
        for name in getattr(layer, attribute, ()):
            if name not in buffers:
                known = ", ".join(buffers) or "none"
                raise BadTrainer(
                    f"{attribute} of layer {path or 'the module'!r}: {name!r} is not one of its "
                    f"buffers ({known})"
                )
            yield (f"{path}.{name}" if path else name), buffers[name]


def _form(dtype: torch.dtype, shape: torch.Size) -> str:
    return f"{str(dtype).removeprefix('torch.')} of shape {tuple(shape)}"


def array_of(tensor: torch.Tensor) -> Array:
    """The numbers of a tensor as they travel: with at least one axis, and as floats."""
    detached = tensor.detach().cpu()
    values = (detached if str(detached.dtype) in _FLOATS else detached.double()).numpy().copy()
    return values.reshape(values.shape or 1)


# A batch is what the user's dataset and collate make it.
def on_device(batch: Any, device: str) -> Any:  # noqa: ANN401
    """The batch with all its tensors on a device."""
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: on_device(value, device) for key, value in batch.items()}
    if isinstance(batch, list):
        return [on_device(value, device) for value in batch]
    if isinstance(batch, tuple):
        moved = [on_device(value, device) for value in batch]
        if hasattr(batch, "_fields"):
            return type(batch)(*moved)
        return tuple(moved)

    return batch


def _diverged(
    loss: float, gradients: Mapping[str, torch.Tensor | None], objective: BatchObjective, where: str
) -> str:
    torch = torch_module()
    named = ""
    for name, gradient in gradients.items():
        if gradient is None:
            continue
        numbers = gradient.coalesce().values() if gradient.is_sparse else gradient
        if not torch.isfinite(numbers).all():
            named = f", parameter {name!r}"
            break

    return (
        f"{where}{named}: the loss is {loss}; lower the learning rate, or look for a division by 0"
        f" ({beginning_of(objective)})"
    )


def _failing_layer(module: torch.nn.Module, objective: BatchObjective, batch: object) -> str:
    """The innermost layer in which the objective fails, with its parameters' shapes: computes it
    once more.
    """
    torch = torch_module()
    entered: list[Any] = []
    hooks = torch.nn.modules.module
    handles = (
        hooks.register_module_forward_pre_hook(lambda layer, _: entered.append(layer)),
        hooks.register_module_forward_hook(lambda *_: entered.pop() and None),
    )
    with suppress(Exception), torch.no_grad():
        # The same error as before, which is reported.
        objective(module, batch)

    for handle in handles:
        handle.remove()
    names = {layer: name for name, layer in module.named_modules()}
    if not entered or not names.get(entered[-1]):
        return ""

    shapes = [
        f"{name} {tuple(parameter.shape)}"
        for name, parameter in entered[-1].named_parameters(recurse=False)
    ]
    return f", layer {names[entered[-1]]!r}" + (
        f" with parameter {', '.join(shapes)}" if shapes else ""
    )


class CardCopies:
    """The copies of one module. Values that go to the card keep their places in memory; those that
    come from it belong to who asked for them, until they are no longer used."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._sent: dict[str, torch.Tensor] = {}

    def begin(self) -> None:
        """Waits for earlier copies, whose places are about to be used again."""
        torch_module().cuda.current_stream(self._device).synchronize()

    def send(self, name: str, values: Array, tensor: torch.Tensor) -> None:
        """Begins to copy values to a tensor of the card, which computes with it only when they are
        there.
        """
        place = self._sent.get(name)
        if place is None:
            place = self._sent[name] = _reachable(tensor)
        np.copyto(place.numpy(), values.reshape(tensor.shape), casting="unsafe")
        tensor.detach().copy_(place, non_blocking=True)

    def fetched(self, tensors: Iterable[torch.Tensor]) -> Iterator[Array]:
        """The numbers of tensors of the card, each as soon as they are here."""
        copies = []
        with torch_module().cuda.device(self._device):
            for tensor in tensors:
                copy = _reachable(tensor)
                copy.copy_(tensor, non_blocking=True)
                arrived = torch_module().cuda.Event()
                arrived.record()
                copies.append((copy, arrived))

        for copy, arrived in copies:
            arrived.synchronize()
            yield copy.numpy()


def _reachable(tensor: torch.Tensor) -> torch.Tensor:
    place: torch.Tensor = torch_module().empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return place
