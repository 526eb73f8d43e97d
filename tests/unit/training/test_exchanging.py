"""The session that a manifest asks for."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn

from gradientmail.exchange import Session, Solo
from gradientmail.exchange.assembling import read_founding
from gradientmail.exchange.records import Agreement
from gradientmail.exits import UserError
from gradientmail.mailbox.memory import MemoryStore
from gradientmail.manifest import run_from_object
from gradientmail.run import Exchange, GradientRun, Trainer
from gradientmail.training.exchanging import session_for


def run(**exchange: Any) -> GradientRun:
    return run_from_object(
        {
            "apiVersion": "gradientmail.io/v1alpha1",
            "kind": "GradientRun",
            "metadata": {"name": "first"},
            "spec": {
                "data": {"steps": 40, "batch": 32, "lanes": 4},
                "trainer": {"exchange": exchange},
                "nodes": [{"name": "a"}],
            },
        }
    )


def test_the_manifests_defaults_are_the_sessions() -> None:
    of_session = {
        name: parameter.default
        for name, parameter in inspect.signature(Session).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    of_manifest = Exchange().model_dump(exclude={"mode"}) | {
        "takeover_seconds": Exchange().takeover_seconds,
        "poll_seconds": Exchange().poll_seconds,
        "transfer_dtype": getattr(torch, Exchange().transfer_dtype.lower()),
        "outage_seconds": Trainer().outage_seconds,
    }
    assert of_manifest == {name: of_session[name] for name in of_manifest}
    assert of_session.keys() - of_manifest.keys() == {"observer", "clock"}


def test_the_manifests_options_reach_the_run() -> None:
    box, model = MemoryStore(), nn.Linear(3, 2)
    asked = run(syncEvery=7, fragments=2, outerLr=0.7, outerMomentum=0.9, transferDtype="Float32")
    with session_for(model, box, "l0", asked):
        assert read_founding(box).agreement == Agreement(7, 2, 0.7, 0.9, "float32")


def test_solo_exchanges_nothing() -> None:
    box = MemoryStore()
    session = session_for(nn.Linear(3, 2), box, "l0", run(mode="Solo"))
    assert isinstance(session, Solo)
    with session:
        session.step(samples=1)
    assert session.statistics is None
    assert list(box.list()) == []


def test_a_model_that_cannot_be_exchanged_is_told_with_the_way_out() -> None:
    with pytest.raises(UserError) as error:
        session_for(nn.Linear(3, 2).requires_grad_(False), MemoryStore(), "l0", run())
    assert str(error.value) == (
        "the model has no parameter that needs gradients: there is nothing to exchange; "
        "spec.trainer.exchange.mode: Solo trains without an exchange"
    )
