"""Informers of the Python client, and a watch that a program resumes itself.

Each line on standard input is answered with the objects of all stores, as JSON:
informer, then name, then version, label and value.
"""

import json
import logging
import os
import sys
import threading
import time

import urllib3
from kubernetes import client, watch
from kubernetes.informer import SharedInformer


def api():
    config = client.Configuration()
    config.host = os.environ["SERVER"]
    config.ssl_ca_cert = os.environ["CA_FILE"]
    config.api_key = {"authorization": "Bearer " + os.environ["TOKEN"]}
    return client.CoreV1Api(client.ApiClient(config))


class Loop:
    """Follows a resource without an informer, as the client's documentation describes."""

    def __init__(self):
        self.held = {}
        self.lock = threading.Lock()
        threading.Thread(target=self.run, daemon=True).start()

    def list(self):
        with self.lock:
            return list(self.held.values())

    def run(self):
        core, version = api(), None
        while True:
            w = watch.Watch()
            try:
                if version is None:
                    first = core.list_namespaced_config_map("default")
                    version = first.metadata.resource_version
                    with self.lock:
                        self.held = {m.metadata.name: m for m in first.items}
                for event in w.stream(
                    core.list_namespaced_config_map, "default", resource_version=version, allow_watch_bookmarks=True
                ):
                    if event["type"] == "BOOKMARK":
                        continue
                    m = event["object"]
                    with self.lock:
                        if event["type"] == "DELETED":
                            del self.held[m.metadata.name]
                        else:
                            self.held[m.metadata.name] = m
            except client.ApiException as e:
                logging.warning("loop: %s", e)
                if e.status == 410:
                    version = None
                    continue
            except urllib3.exceptions.HTTPError as e:
                logging.warning("loop: %s", e)
            if version is not None:
                version = w.resource_version or version
            time.sleep(0.1)


logging.basicConfig(level=logging.WARNING)
loop = Loop()
informer = SharedInformer(api().list_namespaced_config_map, namespace="default")
selector = SharedInformer(api().list_namespaced_config_map, namespace="default", label_selector="parity=1")
informer.start()
selector.start()
stores = {"loop": loop.list, "informer": informer.cache.list, "informer-selector": selector.cache.list}
for _ in sys.stdin:
    told = {
        name: {
            m.metadata.name: "%s %s %s"
            % (m.metadata.resource_version, (m.metadata.labels or {}).get("parity", ""), (m.data or {}).get("value", ""))
            for m in held()
        }
        for name, held in stores.items()
    }
    print(json.dumps(told), flush=True)
os._exit(0)  # the informers' threads wait for events
