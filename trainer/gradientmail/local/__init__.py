"""A whole run on this machine: a process per node, watched from one terminal.

folder      where the run's files and its mailbox lie
machine     the cores and GPUs that there are
plan        the command and the environment of each node; pure
children    the processes: started, read, stopped, never left behind
watching    what the nodes' log lines say of them; pure
screen      the live screen, or plain lines
outcome     how the nodes ended, and the exit code that follows; pure
history     what the lines tell over the whole run: units, and the loss by step
live        the state that the page shows
scraping    the metrics of all nodes as one
serving     page and metrics over HTTP
broadcast   these together
summary     what the run came to, as text
run         all of it in order
"""
