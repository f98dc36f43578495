"""The witness that has those told who subscribed to what requests do to agents and the like."""

from __future__ import annotations

import logging

from mainspring.core.errors import MainspringError
from mainspring.edges.api.app import Answered, Witness
from mainspring.service.keeping.notice import Notice, Notify
from mainspring.service.mail.events import OPERATIONS

_LOG = logging.getLogger("mainspring.api")


def telling(notify: Notify) -> Witness:
    async def tell(answered: Answered) -> None:
        route, who = answered.route, answered.who
        if route is None or who is None or not 200 <= answered.status < 300:
            return
        type_ = OPERATIONS.get(route.operation)
        id_ = answered.made or next(iter(answered.path.values()), None)
        if type_ is None or id_ is None:
            return
        try:
            await notify(Notice(tenant=who.tenant, type=type_, id=id_))
        except MainspringError as error:  # what was asked for is done
            _LOG.error("nobody was told of %s %s: %s", type_, id_, error)

    return tell
