"""Tests that a session answers once, whoever calls it: for every kind of session.

A test class takes `SingleUseTests` as its base, and has a fixture `asked` that says which session
to ask, and how.
"""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Barrier, BrokenBarrierError
from types import ModuleType
from typing import Any

import pytest

from secagg import ProtocolError, SessionAbortedError


@dataclass(frozen=True)
class Asked:
    """A session in a state that must be answered once."""

    session: Any  # in that state
    module: ModuleType  # of its handlers, and of the decoder
    event: tuple[Any, Any]  # phase and event that the questions have
    # asks the session one of two questions, 0 or 1; each alone would be answered
    ask: Callable[[Any, int], Any]
    aborted: Any  # the phase of a session that was ended
    # the same over bytes; None if the session takes none
    ask_bytes: Callable[[Any, int], Any] | None = None
    decoder: str = ""  # the name of what decodes them, in the module

    @property
    def handler(self) -> Callable[..., Any]:
        """What answers the questions."""
        found: Callable[..., Any] = self.module.HANDLERS[self.event]  # type: ignore[attr-defined]
        return found


class SingleUseTests:
    """One state is answered once: whoever calls at once, and whatever copies there are."""

    def test_two_threads_with_two_questions_get_one_answer(
        self, asked: Asked, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taking, looking = Barrier(2), Barrier(2)
        met: list[bool] = []
        handler, kind = asked.handler, type(asked.session)

        def meeting(*arguments: Any) -> Any:
            # Whoever answers waits for another that has taken the same state.
            try:
                taking.wait(0.3)
                met.append(True)
            except BrokenBarrierError:
                met.append(False)
            return handler(*arguments)

        real = kind._take

        def slowly(self: Any) -> Any:
            state = self._state
            with suppress(BrokenBarrierError):
                looking.wait(0.3)
            self._state = state
            return real(self)

        monkeypatch.setattr(kind, "_take", slowly)
        monkeypatch.setitem(asked.module.HANDLERS, asked.event, meeting)  # type: ignore[attr-defined]

        def ask(story: int) -> Any:
            try:
                return asked.ask(asked.session, story)
            except ProtocolError as error:
                return error

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(ask, (0, 1)))
        assert met == [False]
        assert sorted(isinstance(answer, ProtocolError) for answer in answers) == [False, True]

    def test_a_step_that_another_thread_is_in_does_not_bring_an_aborted_session_back(
        self, asked: Asked, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handler = asked.handler

        def aborted_meanwhile(*arguments: Any) -> Any:
            pool.submit(asked.session.abort).result(60)
            return handler(*arguments)

        monkeypatch.setitem(asked.module.HANDLERS, asked.event, aborted_meanwhile)  # type: ignore[attr-defined]
        with ThreadPoolExecutor(1) as pool:
            with pytest.raises(SessionAbortedError, match="while it answered"):
                asked.ask(asked.session, 0)
        assert asked.session.phase is asked.aborted

    @pytest.mark.parametrize("by", ["handler", "decoder"])
    def test_a_step_that_is_aborted_from_within_gives_no_answer(
        self, asked: Asked, monkeypatch: pytest.MonkeyPatch, by: str
    ) -> None:
        """By a signal handler, or a callback, of the thread that the step runs in."""
        use, match = asked.ask, "while it answered"

        def aborted(then: Any, *arguments: Any) -> Any:
            asked.session.abort()
            return then(*arguments)

        if by == "handler":
            handled = partial(aborted, asked.handler)
            monkeypatch.setitem(asked.module.HANDLERS, asked.event, handled)  # type: ignore[attr-defined]
        elif asked.ask_bytes is not None:
            use = asked.ask_bytes
            decode = getattr(asked.module, asked.decoder)
            monkeypatch.setattr(asked.module, asked.decoder, partial(aborted, decode))
        else:
            asked.session.abort()
            match = "is over"
        with pytest.raises(SessionAbortedError, match=match):
            use(asked.session, 0)
        assert asked.session.phase is asked.aborted
        with pytest.raises(SessionAbortedError):
            asked.ask(asked.session, 1)

    def test_an_error_ends_the_session(self, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of any kind: what a handler did before it failed is not known."""

        def failing(*_: Any) -> Any:
            raise MemoryError

        with monkeypatch.context() as patched:
            patched.setitem(asked.module.HANDLERS, asked.event, failing)  # type: ignore[attr-defined]
            with pytest.raises(MemoryError):
                asked.ask(asked.session, 0)
        assert asked.session.phase is asked.aborted
        with pytest.raises(SessionAbortedError):
            asked.ask(asked.session, 0)

    def test_a_forked_process_answers_nothing(
        self, asked: Asked, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ours, session = os.getpid(), asked.session
        uses: list[Callable[[], Any]] = [lambda: asked.ask(session, 0), session.hand_over]
        if (over_bytes := asked.ask_bytes) is not None:
            uses.append(lambda: over_bytes(session, 0))
        # As in a fork: another process, and a lock that somebody who is not there may hold.
        with session._lock, ThreadPoolExecutor(1) as pool:
            monkeypatch.setattr(os, "getpid", lambda: ours + 1)
            for use in uses:
                with pytest.raises(SessionAbortedError, match="another process"):
                    pool.submit(use).result(60)
            monkeypatch.undo()
        assert asked.ask(session, 0) is not None

    def test_a_forked_copy_can_be_forgotten(
        self, asked: Asked, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with asked.session._lock, ThreadPoolExecutor(1) as pool:
            ours = os.getpid()
            monkeypatch.setattr(os, "getpid", lambda: ours + 1)
            pool.submit(asked.session.abort).result(60)
        assert asked.session.phase is asked.aborted

    def test_a_copy_would_answer_again(self, asked: Asked) -> None:
        for copying in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="neither copied nor pickled"):
                copying(asked.session)
