"""Names of series and sentences that several panels share."""

from __future__ import annotations

NODE = "{{node}}"
RUN_NAME = "{{namespace}}/{{run}}"
NO_TRAINER = "No trainer has answered in the time shown: none has started, all have ended, or they are not scraped."
NO_CONTROLLER = "No controller that knows of a run here is scraped. A local run has none; else see the chart's metrics."
NO_EXCHANGE = "No node exchanges parameters: the run does not ask for it, or has not begun."
NO_CLAIM = "No unit has been claimed in the window of the rate; near the end of a run all of them are."
NO_ERROR = "No request has failed since the nodes started."
NO_LOSS = "No loss has been logged yet; trainer.logEvery says how often it is."
NO_PACE = "Less than a hundredth is done, or no unit has been in the last five minutes, or the run has ended."
