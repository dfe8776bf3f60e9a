"""A site's own guard: whatever job it is sent, no result leaves but answers of a round.

A job's configuration is written by whoever submits the job and delivered by the server. A job that
trains without masks would be sent, and run, like any other. This filter goes into a site's own
`local/privacy.json`, where no job can take it out.
"""

from __future__ import annotations

from nvflare.apis.filter import ContentBlockedException, Filter
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

from protocol.adapters.nvflare.messages import answer_in, reply


class OnlyAnswers(Filter):
    """Task-result filter that lets answers of `MaskedTraining` through, bare, and nothing else."""

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """A result of the same meaning without anything that is not part of it.

        Raises:
            ContentBlockedException: it is no answer; NVFlare then sends an error code instead.
        """
        code = shareable.get_return_code()
        if code != ReturnCode.OK:
            return make_reply(code)
        answer = answer_in(shareable)
        if answer is None:
            raise ContentBlockedException("this site sends only masked results")
        return reply(answer)
