"""megatron-core without a GPU: its cuda names answered by the CPU.

megatron-core asks for ``device="cuda"``, ``torch.cuda.current_device()`` and the like
in code that otherwise runs anywhere. `cpu_device` answers these questions with the CPU
in the thread that entered it and nowhere else: the driver, the embedded engine and
other libraries in the process keep seeing a machine without a GPU. Where a GPU exists
the context does nothing at all.

What cannot run here is refused by name in `refuse_on_cpu`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from relax.backends.megatron.mcore import CudaRNGStatesTracker, moe_utils
from relax.errors import ArgumentError

CPU = torch.device("cpu")

_inside = threading.local()
_install_lock = threading.Lock()
_installed: list[str] = []


def has_gpu() -> bool:
    """Whether this process sees a GPU."""
    return torch.cuda.is_available()


def training_device() -> torch.device:
    """The device that holds the model: the current GPU, else the CPU."""
    if has_gpu():
        return torch.device("cuda", torch.cuda.current_device())
    return CPU


@contextmanager
def cpu_device() -> Iterator[None]:
    """Answers megatron's cuda names with the CPU in this thread, if there is no GPU.

    Enter it around everything that builds, runs or updates the model. It nests.
    """
    if has_gpu() or _is_inside():
        yield
        return
    _install()
    _inside.flag = True
    try:
        with _CudaNamesOnCpu():
            yield
    finally:
        _inside.flag = False


def refuse_on_cpu(transformer: Mapping[str, Any], *, context_size: int) -> None:
    """Refuses the TransformerConfig values that megatron-core can run on a GPU only.

    Args:
        transformer: TransformerConfig fields that will be used.
        context_size: ``--context-parallel-size``.

    Raises:
        ArgumentError: One of them is set; names it.
    """
    if has_gpu():
        return
    if context_size > 1:
        raise ArgumentError(
            f"--context-parallel-size {context_size} needs GPUs: the attention that "
            "splits a sequence is Transformer Engine's",
            hint="leave it at 1 on CPU",
        )
    for name in ("hidden_dropout", "attention_dropout"):
        if transformer.get(name, 0.0):
            raise ArgumentError(
                f"--{name.replace('_', '-')} {transformer[name]} needs a GPU: "
                "megatron's dropout draws from CUDA random states",
                hint="leave it at 0 on CPU",
            )
    for name in ("fp8", "fp4", "recompute_granularity"):
        if transformer.get(name) is not None:
            raise ArgumentError(
                f"--{name.replace('_', '-')} {transformer[name]} needs a GPU",
                hint="leave it out on CPU",
            )


class _CudaNamesOnCpu(TorchFunctionMode):
    """Maps cuda devices in calls of torch functions to the CPU."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            # clip_grads asserts the cuda spelling of a float32 gradient's type.
            return func(*args).replace("torch.", "torch.cuda.", 1)
        if _names_cuda(kwargs.get("device")):
            kwargs = {**kwargs, "device": CPU}
        if func is torch.Tensor.to and len(args) > 1 and _names_cuda(args[1]):
            args = (args[0], CPU, *args[2:])
        return func(*args, **kwargs)


def _names_cuda(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    if isinstance(device, str):
        return device.startswith("cuda")
    return isinstance(device, int) and not isinstance(device, bool)


class _InertStream:
    """A stream of a machine whose work is always done already."""

    def wait_stream(self, stream: object) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: object) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


_STREAM = _InertStream()


def _is_inside() -> bool:
    try:
        return bool(_inside.flag)
    except AttributeError:  # this thread has not entered yet
        return False


def _install() -> None:
    """Puts thread-aware answers in front of the functions no function mode sees.

    Done once a process and never undone: outside `cpu_device` they call the original.
    """
    with _install_lock:
        if _installed:
            return
        _answer(torch.cuda, "current_device", lambda *_: CPU)
        _answer(torch.cuda, "current_stream", lambda *_, **__: _STREAM)
        _answer(torch.cuda, "default_stream", lambda *_, **__: _STREAM)
        _answer(torch.cuda, "synchronize", lambda *_, **__: None)
        # Dropout is 0 on CPU, so no random state needs to be forked.
        _answer(CudaRNGStatesTracker, "fork", lambda *_, **__: nullcontext())
        if not hasattr(moe_utils, "te_general_gemm"):
            # 0.16 reads the name without having set it where TE is absent.
            moe_utils.te_general_gemm = None


def _answer(owner: Any, name: str, on_cpu: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    def answer(*args: Any, **kwargs: Any) -> Any:
        if _is_inside():
            return on_cpu(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(owner, name, answer)
    _installed.append(name)
