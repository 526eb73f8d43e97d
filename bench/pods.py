"""The cluster example in pods, with the exchange and without: whose model is better on text that none has seen.

examples/cluster/four-nodes.yaml on a real cluster, twice, on the same units; see tests/cluster for how one comes about.
Training text and held-out text are Python's own library, as `gradientmail data` makes shards of it, in the bucket.
About 6 minutes.
"""

from __future__ import annotations

import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import yaml

from bench.figures import Figure, show
from gradientmail.progress import ExchangeProgress
from gradientmail.training.data.text import VOCABULARY, Wish, make_corpus
from tests.cluster.harness.manifests import training_pool
from tests.cluster.harness.namespaces import Namespace, Namespaces
from tests.cluster.harness.serving import serve_store
from tests.cluster.harness.session import install_controller, open_site
from tests.cluster.harness.store import Store
from tests.cluster.harness.tool import ROOT

EXAMPLE = ROOT / "examples" / "cluster" / "four-nodes.yaml"
STEPS = 1200
"""Dataset steps: 4,800 optimizer steps over all nodes, enough for the exchange to show."""
SECONDS = 600


def upload(namespace: Namespace, store: Store) -> str:
    """Put shards to train on and shards to judge by into the namespace's bucket; return their folder."""
    library = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "corpus"
        make_corpus(library, "*.py", Wish(made))
        for file in made.glob("*/*.bin"):
            store.client.upload_file(str(file), namespace.name, f"corpus/{file.relative_to(made)}")
    return f"s3://{namespace.name}/corpus"


def manifest(namespace: Namespace, corpus: str, exchange: Mapping[str, Any]) -> dict[str, Any]:
    """Return the example as a run of this namespace, on another corpus and longer."""
    example = yaml.safe_load(EXAMPLE.read_text())
    spec = example["spec"]
    trainer = {key: value for key, value in spec["trainer"].items() if key != "image"}
    trainer["args"] |= {"train": f"{corpus}/train/", "held_out": f"{corpus}/held-out/", "vocabulary": VOCABULARY}
    pools = [namespace.training(training_pool(**pool)) for pool in spec["nodes"]]
    return {
        **example,
        "metadata": {"name": exchange["mode"].lower()},
        "spec": {
            **spec,
            "data": {**spec["data"], "steps": STEPS},
            "mailbox": {},
            "nodes": pools,
            "trainer": {**trainer, "exchange": {**trainer.get("exchange", {}), **exchange}},
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
        corpus = upload(namespace, store)
        told = {}
        for mode in ("Asynchronous", "Solo"):
            print(f"== exchange: {mode}", flush=True)
            run = namespace.apply(manifest(namespace, corpus, {"mode": mode}))
            run.wait_phase("Succeeded", SECONDS)
            told[mode] = list(run.last_words().values())
        for node in told["Asynchronous"]:
            counts = ExchangeProgress.from_fields(node["exchange"])
            staleness = counts.staleness_mean or 0.0
            print(f"== {node['node']}: versions {counts.versions}, mean staleness {staleness:.1f} steps")
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
