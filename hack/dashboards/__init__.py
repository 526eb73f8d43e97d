"""The Grafana dashboards as code. `make dashboards` writes the JSON that the chart ships.

`expressions` has what is asked of Prometheus, `fleet` and `run` the panels, `model` what a panel is, and `building`
turns it into Grafana's JSON with Grafana's own library. None of them talks to anything.
"""
