"""The daemon's answers over HTTP (``router/http/app.py``): metrics, statistics, the network, explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from catalog.config.history import StartPoint
from catalog.describe import TapPlace, tap_places
from catalog.errors import AuroraError
from catalog.network import Network
from engine.daemon.change import LiveChanges
from engine.daemon.monitor.readiness import Readiness
from engine.daemon.process.descriptors import DescriptorShares
from engine.daemon.process.version import own_version
from engine.daemon.web.begin import Begin, send_to
from engine.daemon.web.command import ConsoleError
from engine.daemon.web.console import Console
from engine.daemon.web.names import Names
from engine.run.core import Engine
from engine.run.journeys.journey import Journey
from engine.run.taps import Watch, tap_filter
from engine.run.views import list_views, view_rows
from load_shedder.control_loop import OverloadControl
from qos_monitor.busy import BusyHistory
from qos_monitor.loop import Monitor
from qos_monitor.sampler import Sample
from router.access.access import Access
from router.access.http_door import HttpDoor
from router.http.app import AdminQueries, Explanation, HttpQueries, make_app
from router.http.history import HistoryQueries
from router.http.server import HttpPlaces, HttpServer
from router.http.views import ViewQueries
from router.server import Server

if TYPE_CHECKING:
    from engine.daemon.durable.keeper import Keeper


class _OpenTap(NamedTuple):
    place: TapPlace
    watch: Watch
    unregister: Callable[[], None]


class Web:
    """Owner: the I/O thread."""

    def __init__(
        self,
        network: Network,
        engine: Engine,
        server: Server,
        monitor: Monitor,
        busy: BusyHistory,
        readiness: Readiness,
        shares: DescriptorShares,
        door: LiveChanges,
        access: Access,
        keeper: Keeper | None,
        overload: Callable[[], OverloadControl[Sample]],
    ) -> None:
        self._keeper = keeper
        self._shares = shares
        self._access = access
        self._server = server
        self._door = door
        self._taps: dict[int, _OpenTap] = {}
        self._tap_numbers = count()
        begin = Begin(lambda: self._network, door, self._feed)
        self._console = Console(lambda: self._monitor.stats(), lambda: self._network, door, overload, begin)
        self.http: HttpServer | None = None
        self.adopt(network, engine, monitor, busy, readiness)

    def _feed(self, stream: str, data: bytes) -> None:
        """Send bytes to a stream's own listener. Any thread but the I/O thread."""
        if not self._access.is_open:
            raise ConsoleError("the streams of this daemon ask for a login", "send rows with a client that has one")
        address = self._server.addresses.get(f"stream {stream}")
        if address is None:
            raise ConsoleError(f"no client can send to a stream '{stream[:100]}'", "it needs a source with tcp")
        send_to(address, data)

    def adopt(
        self, network: Network, engine: Engine, monitor: Monitor, busy: BusyHistory, readiness: Readiness
    ) -> None:
        """Answer about this network from now on. Open taps go on where their place is still there."""
        self._network = network
        self._engine = engine
        self._monitor = monitor
        self._busy = busy
        self._readiness = readiness
        self._names = Names(network, engine.ingress, self._server, self._keeper, self._access)
        places = tap_places(network) if self._taps else {}
        for number, tap in list(self._taps.items()):
            place = places.get(tap.place.name)
            if place is not None and place.schema == tap.place.schema:
                self._taps[number] = _OpenTap(place, tap.watch, engine.taps.register(place, tap.watch))

    async def open(self) -> None:
        """Listen, unless the network file has no ``http`` address. Raises ListenError."""
        listen = self._network.config.http.listen
        if listen is not None:
            app = make_app(self._queries())
            app.open()
            self.http = await HttpServer.start(
                HttpDoor(app, self._network.config.http.hosts, self._access),
                listen.host,
                listen.port,
                places=HttpPlaces(self._shares.http, self._shares.http_reserved),
                backlog=self._shares.backlog,
                tls=self._access.http_tls,
            )

    async def close(self) -> None:
        if self.http is not None:
            await self.http.stop()

    def warm_up(self) -> None:
        """Import prometheus-client, which takes 30 ms, before the first scrape and after everything else is ready."""
        _ = self._metrics

    def explain(self, output: str, where: str, limit: int) -> dict[str, Any]:
        """Explain why an output's slowest tuples of the last minute were late. AuroraError for a bad question."""
        from engine.run.journeys.explain import explain

        engine = self._engine
        return explain(engine.journeys, self._busy, self._network, output, where, limit, engine.now_ns())

    def follow(self, output: str, where: str, found: Callable[[Explanation], None]) -> Callable[[], None]:
        """Call ``found`` with the explanation of the next tuple that meets a condition. AuroraError for a bad one."""
        from engine.run.journeys.explain import answer_for, follow

        target = self._network.output(output)

        def explain_one(journey: Journey) -> None:
            found(lambda: answer_for([journey], self._busy, self._network, target, where, 1))

        return follow(self._engine.journeys, self._network, output, where, explain_one)

    def _dead_letters(self, limit: int) -> list[dict[str, Any]]:
        """Return refused inputs and tuples that boxes could not process, the newest first."""
        letters = self._server.dead_letters.to_json(limit=limit)
        for runtime in self._engine.runtimes:
            letters += [
                {"at_ns": at_ns, "box": runtime.node.name, "reason": "dead", "message": why, "row": row, "tuples": 1}
                for at_ns, row, why in runtime.box.dead_rows(runtime.state)
            ]
        return sorted(letters, key=lambda letter: -letter["at_ns"])[:limit]

    def _savepoint(self, name: str) -> str:
        if self._keeper is None:
            raise AuroraError("a savepoint needs engine.data_dir: without it nothing is kept")
        return self._keeper.save(name)

    def _history(self) -> list[dict[str, Any]]:
        return [] if self._keeper is None else self._keeper.history.listing()

    def _frames(self, name: str, start: StartPoint, follows: bool) -> Iterator[bytes]:
        if self._keeper is None:
            raise AuroraError("there is no history without engine.data_dir")
        return self._keeper.history.frames(name, start, follows)

    def _queries(self) -> HttpQueries:
        return HttpQueries(
            metrics=lambda accept: self._metrics(accept),
            stats=lambda: self._monitor.stats(),
            bills=lambda: self._monitor.bills(),
            network=lambda: self._network,
            ready=lambda: self._readiness.checks(),
            dead_letters=self._dead_letters,
            tap=self._tap,
            tap_filter=tap_filter,
            explain=self.explain,
            follow=self.follow,
            drops=lambda limit: self._engine.shedding.to_json(limit),
            change=self._door,
            history=HistoryQueries(self._history, self._frames),
            views=ViewQueries(
                lambda: list_views(self._engine), lambda name, where: view_rows(self._engine, name, where)
            ),
            admin=AdminQueries(lambda: self._names.listing(), lambda *name: self._names.drop(*name), self._savepoint),
            console=self._console.queries(),
            version=own_version(),
        )

    def _tap(self, place: TapPlace, watch: Watch) -> Callable[[], None]:
        """Show a place's trains to ``watch``, also after the network has changed."""
        number = next(self._tap_numbers)
        self._taps[number] = _OpenTap(place, watch, self._engine.taps.register(place, watch))

        def end() -> None:
            self._taps.pop(number).unregister()

        return end

    @cached_property
    def _metrics(self) -> Callable[[str], tuple[bytes, str]]:
        from qos_monitor.metrics import EngineCollector, expose, registry_for

        registry = registry_for(EngineCollector(lambda: self._monitor.readings(), lambda: self._monitor.residuals))
        return lambda accept: expose(registry, accept)
