"""The cluster example in pods, with the exchange and without: whose model is better on text that none has seen.

examples/cluster/four-nodes.yaml on a real cluster, twice, on the same units; see tests/cluster for how one comes about.
Training text and held-out text are Python's own library, read from the bucket. About 6 minutes.
"""

from __future__ import annotations

import array
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import yaml

from bench.figures import Figure, show
from tests.cluster.harness.manifests import training_pool
from tests.cluster.harness.namespaces import Namespace, Namespaces
from tests.cluster.harness.serving import serve_store
from tests.cluster.harness.session import install_controller, open_site
from tests.cluster.harness.tool import ROOT

EXAMPLE = ROOT / "examples" / "cluster" / "four-nodes.yaml"
STEPS = 1200
"""Dataset steps: 4,800 optimizer steps over all nodes, enough for the exchange to show."""
TRAINED_BYTES, HELD_OUT_BYTES = 2**22, 2**17
SECONDS = 600


def tokens() -> tuple[bytes, bytes]:
    """Return the text to train on and the text to judge by: a uint16 token for each byte."""
    library = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    text = b"".join(file.read_bytes() for file in library)
    pieces = text[:TRAINED_BYTES], text[TRAINED_BYTES : TRAINED_BYTES + HELD_OUT_BYTES]
    first, second = (array.array("H", list(piece)).tobytes() for piece in pieces)
    return first, second


def manifest(namespace: Namespace, name: str, exchange: Mapping[str, Any]) -> dict[str, Any]:
    """Return the example as a run of this namespace, with both texts in its bucket."""
    example = yaml.safe_load(EXAMPLE.read_text())
    spec = example["spec"]
    trainer = {key: value for key, value in spec["trainer"].items() if key != "image"}
    folder = f"s3://{namespace.name}/corpus"
    trainer["args"] |= {"train": f"{folder}/train.bin", "held_out": f"{folder}/held-out.bin"}
    pools = [namespace.training(training_pool(**pool)) for pool in spec["nodes"]]
    return {
        **example,
        "metadata": {"name": name},
        "spec": {
            **spec,
            "data": {**spec["data"], "steps": STEPS},
            "mailbox": {},
            "nodes": pools,
            "trainer": {**trainer, "exchange": dict(exchange)},
        },
    }


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    with ExitStack() as stack:
        site = stack.enter_context(open_site(lambda text: print(f"== {text}", flush=True), nullcontext))
        store = serve_store(site, stack)
        stack.enter_context(install_controller(site))
        namespaces = Namespaces(site.api, site.kubectl, store, site.images)
        stack.callback(namespaces.delete)
        namespace = namespaces.create("pods")
        for key, data in zip(("train", "held-out"), tokens(), strict=True):
            store.client.put_object(Bucket=namespace.name, Key=f"corpus/{key}.bin", Body=data)
        told = {}
        for mode in ("Asynchronous", "Solo"):
            print(f"== exchange: {mode}", flush=True)
            run = namespace.apply(manifest(namespace, mode.lower(), {"mode": mode}))
            run.wait_phase("Succeeded", SECONDS)
            told[mode] = list(run.last_words().values())
        final = next(words["exchange"] for words in told["Asynchronous"] if words["exchange"]["final_samples"])
        alone = sorted(words["held_out_loss"] for words in told["Solo"])
        found = final["final_held_out_loss"]
        words = ", ".join(f"{loss:.3f}" for loss in alone)
        yield Figure("final model's held-out loss, in pods", f"{found:.3f}", f"below {words} of Solo", found < alone[0])


def main() -> None:
    """Measure and print."""
    show(list(measure()))


if __name__ == "__main__":
    main()
