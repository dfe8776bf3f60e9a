"""A federation of NVFlare in one process: its own task scheduler, six sites, bytes between them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.client import Client
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.impl.wf_comm_server import WFCommServer
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.apis.utils.decomposers import flare_decomposers
from nvflare.apis.utils.fl_context_utils import gen_new_peer_ctx
from nvflare.apis.workspace import Workspace
from nvflare.app_common.abstract.model import ModelLearnable, make_model_learnable
from nvflare.app_common.abstract.model_persistor import ModelPersistor
from nvflare.app_common.decomposers import numpy_decomposers

from protocol.adapters.nvflare import MaskedTraining, PrivateAveraging
from protocol.adapters.nvflare.messages import enclose
from protocol.adapters.nvflare.site import make_identity, write_registry

# As NVFlare's own programs do when they start.
numpy_decomposers.register()
flare_decomposers.register()

NAMES = [f"site-{number}" for number in range(1, 7)]
SHAPES = {"matrix": (7, 5), "bias": (5,)}
DIMENSION = 40
STEP = 0.05
AGREEMENT = """\
rounds = 4
dimension = 40

[privacy]
noise_multiplier = 0.5
delta = 1e-5
clip_l2 = 3.0

[cohort]
size = 6
tolerated_dropouts = 1
tolerated_colluders = 1
"""
MARKER = "seventeen-samples"


def model() -> dict[str, np.ndarray]:
    return {"matrix": np.ones(SHAPES["matrix"]), "bias": np.zeros(5), "batches": np.int64([3])}


class Engine:
    """What NVFlare's components ask of the engine of a site."""

    def __init__(
        self, workspace: Workspace, name: str, components: dict[str, Persistor | Trainer]
    ) -> None:
        self.workspace, self.components = workspace, components
        self.contexts = FLContextManager(engine=self, identity_name=name, job_id="job")
        self.panics, self.clients = [], []
        self.events = []

    def new_context(self) -> FLContext:
        return self.contexts.new_context()

    def get_workspace(self) -> Workspace:
        return self.workspace

    def get_component(self, name: str) -> Any:
        return self.components.get(name)

    def get_clients(self) -> list[Client]:
        return self.clients

    def fire_event(self, event: str, context: FLContext) -> None:
        """Every event, with all that a widget of the job could send on."""
        props = {key: context.get_prop(key) for key in context.get_prop_keys()}
        self.events.append((event, repr(props)))
        if event == "_fatal_system_error" or "fatal" in str(event).lower():
            self.panics.append(context.get_prop(FLContextKey.EVENT_DATA))


class Trainer(Executor):
    """Adds a constant of its own to every number, and tells more than it should."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.number = 1 + NAMES.index(name) if name in NAMES else 0
        self.models, self.numbers, self.raises, self.kind = [], [], None, DataKind.WEIGHTS

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        weights = from_shareable(shareable).data
        self.models.append({name: array.copy() for name, array in weights.items()})
        if self.raises is not None:
            raise self.raises
        assert task_name == "train"
        self.numbers.append(shareable.get_header("current_round"))
        for name in SHAPES:
            weights[name] += STEP * self.number
            if self.kind == DataKind.WEIGHT_DIFF:
                weights[name] = np.full(SHAPES[name], STEP * self.number)
        meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: 17, "note": MARKER}
        result = DXO(self.kind, weights, meta).to_shareable()
        result.set_header("extra", MARKER)
        return result


class Persistor(ModelPersistor):
    def __init__(self) -> None:
        super().__init__()
        self.saved = []

    def load_model(self, fl_ctx: FLContext) -> ModelLearnable:
        return make_model_learnable(model(), {})

    def save_model(self, learnable: ModelLearnable, fl_ctx: FLContext) -> None:
        self.saved.append((learnable["weights"], learnable["meta"]["veilsum"]))


class Federation:
    """A server and six sites: NVFlare's scheduler, and our parts, with bytes between them.

    `committee` names the members of a named committee, `clients` who may be in a cohort.
    """

    def __init__(
        self,
        root: Path,
        agreement: str = AGREEMENT,
        committee: Sequence[str] = (),
        clients: Sequence[str] = NAMES,
        **options: Any,
    ) -> None:
        self.root = root
        shared = root / "shared"
        shared.mkdir(parents=True)
        self.names = list(dict.fromkeys((*NAMES, *committee)))
        registry = {name: make_identity(self.folder(name), name) for name in self.names}
        for name in ("server", *self.names):
            self.folder(name).mkdir(parents=True, exist_ok=True)
            (root / name / "startup").mkdir()
            write_registry(self.folder(name), {each: registry[each] for each in clients})
            if committee:
                members = {each: registry[each] for each in committee}
                write_registry(self.folder(name), members, "committee.json")
            (self.folder(name) / "agreement.toml").write_text(agreement)
        self.registry = registry
        self.persistor = Persistor()
        self.server = Engine(self.workspace("server"), "server", {"persistor": self.persistor})
        self.server.clients = [Client(each, each) for each in self.names]
        self.trainers = {name: Trainer(name) for name in self.names}
        self.engines = {
            name: Engine(self.workspace(name), name, {"trainer": self.trainers[name]})
            for name in self.names
        }
        self.executors = {name: MaskedTraining("trainer") for name in self.names}
        self.restarts, self.on_task, self.results = False, lambda *_: None, []
        defaults = {"num_rounds": 1, "stage_timeout": 90, "train_timeout": 90, "failed_rounds": 0}
        self.options = {**defaults, "task_check_period": 0.02, **options}

    def folder(self, name: str) -> Path:
        return self.root / name / "local" / "veilsum"

    def workspace(self, name: str) -> Workspace:
        return Workspace(str(self.root / name), name)

    def answer(self, name: str, task: str, data: Shareable, message: bytes) -> Shareable:
        """One task in one client; None if it stays silent."""
        data = Shareable.from_bytes(data.to_bytes())
        context = self.context(name, message)
        if self.restarts:
            self.executors[name].handle_event("_end_run", self.engines[name].new_context())
            self.executors[name] = MaskedTraining("trainer")
        changed_data = self.on_task(name, task, data, message)
        if changed_data == "silent":
            return None
        try:
            executor = self.executors[name]
            result = executor.execute(task, changed_data or data, context, Signal())
        except Exception:  # what NVFlare does
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        sent = result.to_bytes()
        self.results.append((name, task, sent))
        return Shareable.from_bytes(sent)

    def last_from(self, name: str) -> bytes:
        """The last bytes that a client sent."""
        return [sent for sender, _, sent in self.results if sender == name][-1]

    def context(self, name: str, message: bytes) -> FLContext:
        """Of a client that was delivered a message."""
        sender = FLContext()
        enclose(message, sender)
        context = self.engines[name].new_context()
        context.set_peer_context(Shareable.from_bytes(Shareable({"": sender}).to_bytes())[""])
        return context

    def run(self) -> list[str]:
        """The whole job; returns what it panicked about."""
        controller = PrivateAveraging(**self.options)
        communicator = WFCommServer()
        controller.set_communicator(communicator)
        context, over = self.server.new_context(), threading.Event()
        self.abort = Signal()
        communicator.initialize_run(context)
        controller.initialize(context)
        pump = threading.Thread(target=self._pump, args=(communicator, over))
        pump.start()
        try:
            controller.control_flow(self.abort, context)
        finally:
            over.set()
            pump.join()
            communicator.finalize_run(context)
            for name in self.names:
                self.executors[name].handle_event("_end_run", self.engines[name].new_context())
        return self.server.panics

    def _pump(self, communicator: WFCommServer, over: threading.Event) -> None:
        """Deliver tasks; when those who will never answer are all that is left, time is up."""
        silent = set()
        while not over.is_set():
            for client in self.server.clients:
                context = self.server.new_context()
                task, number, data = communicator.process_task_request(client, context)
                if task and number not in silent:
                    sent = gen_new_peer_ctx(context)
                    result = self.answer(client.name, task, data, sent.get_prop("veilsum_message"))
                    if result is None:
                        silent.add(number)
                    else:
                        communicator.process_submission(client, task, number, result, context)
            for each in () if self.abort.triggered else list(communicator._tasks):
                waited = {sent.id for sent in each.client_tasks if not sent.result_received_time}
                if len(each.client_tasks) == len(each.targets) and set() < waited <= silent:
                    each.schedule_time -= each.timeout
            time.sleep(0.005)
