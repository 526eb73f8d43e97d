"""moto's S3 server on a port that other pods reach; started in a pod that has tests/servers.py."""

from __future__ import annotations

import logging
import signal
import sys

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from tests.servers import one_at_a_time

logging.getLogger("werkzeug").setLevel(logging.ERROR)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
application = one_at_a_time(DomainDispatcherApplication(create_backend_app))
make_server("", 9000, application, threaded=True, request_handler=MotoRequestHandler).serve_forever()
