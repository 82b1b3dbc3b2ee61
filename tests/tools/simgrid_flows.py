"""
When flows end by SimGrid's fluid model: JSON of links and flows on standard input, seconds of each flow on standard
output. It runs in whatever Python has SimGrid (Debian's python3-simgrid), so it needs nothing of this project.

The model is CM02 without its corrections for TCP: bandwidth is shared max-min fairly over the links of a route.
"""

import json
import sys

SETTINGS = (
    "network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0", "network/weight-S:0",
    "network/bandwidth-factor:1", "network/latency-factor:1", "network/loopback-lat:0", "contexts/factory:thread",
)  # fmt: skip


def main() -> None:
    from simgrid import Actor, Engine, LinkInRoute, NetZone

    asked = json.load(sys.stdin)
    engine = Engine([sys.argv[0], *(f"--cfg={setting}" for setting in SETTINGS), "--log=root.thres:critical"])
    zone = NetZone.create_full_zone("machine")
    links = {name: zone.create_link(name, rate).set_latency(0).seal() for name, rate in asked["links"].items()}
    ends = [0.0] * len(asked["flows"])
    for k, flow in enumerate(asked["flows"]):
        pair = [zone.create_host(f"{side}{k}", 1e9).seal() for side in ("from", "to")]
        route = [LinkInRoute(links[name]) for name in flow["route"]]
        zone.add_route(pair[0].netpoint, pair[1].netpoint, None, None, route, False)
        Actor.create(f"sender{k}", pair[0], _send, k, flow)
        Actor.create(f"receiver{k}", pair[1], _receive, k, ends)
    zone.seal()
    engine.run()
    json.dump(ends, sys.stdout)


def _send(k, flow):
    from simgrid import Mailbox, this_actor

    this_actor.sleep_for(flow["start"])
    Mailbox.by_name(f"flow{k}").put("bytes", int(flow["bytes"]))


def _receive(k, ends):
    from simgrid import Engine, Mailbox

    Mailbox.by_name(f"flow{k}").get()
    ends[k] = Engine.clock


if __name__ == "__main__":
    main()
