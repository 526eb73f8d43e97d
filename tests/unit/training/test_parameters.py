"""The model that a node without an exchange leaves behind, of any module."""

from __future__ import annotations

import torch
from safetensors.torch import load
from torch import Tensor, nn

from gradientmail.mailbox.memory import MemoryStore
from gradientmail.training.parameters import write_model


class Strange(nn.Module):
    """Tied parameters, buffers that share a parameter's memory, and state that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))
        self.tied = self.weight
        self.register_buffer("row", self.weight.data[1])
        self.register_buffer("turned", self.weight.data.T)

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": 1}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Nothing is kept."""


def written(model: nn.Module) -> dict[str, Tensor]:
    box = MemoryStore()
    write_model(box, "l", model)
    data = box.get("model/l.safetensors")
    assert data is not None
    return load(data)


def test_a_model_of_any_module_is_written() -> None:
    tensors = {name: tensor.tolist() for name, tensor in written(Strange()).items()}
    assert tensors == {
        "weight": [[0, 1, 2], [3, 4, 5]],
        "row": [3, 4, 5],
        "turned": [[0, 3], [1, 4], [2, 5]],
    }


def test_names_are_those_of_the_model_before_it_was_compiled() -> None:
    compiled = torch.compile(nn.Linear(2, 1, bias=False))
    assert isinstance(compiled, nn.Module)
    assert list(written(compiled)) == ["weight"]
