"""Users, for administrators."""

from __future__ import annotations

from headgate.server import listings as lists
from headgate.server.api.answers import Named, UserRow
from headgate.server.api.rights import check_administrator
from headgate.server.context import ServerContext
from headgate.server.http import ADMINISTRATORS, Answer, Call, Endpoint, Group, stored


def user_group(context: ServerContext) -> Group:
    """The endpoints of users."""
    requests = _UserRequests(context)
    return Group(
        "Users",
        "Users with their tags and permissions.",
        (
            Endpoint(
                "GET",
                "users",
                "The users, without their passwords.",
                requests.listed,
                permission=ADMINISTRATORS,
                answer=list[UserRow],
            ),
            Endpoint(
                "PUT",
                "users/{user}",
                "Makes a user, or changes one; keys that are left out stay.",
                requests.put,
                permission=ADMINISTRATORS,
                body=lists.UserChange,
                example={"password": "…", "tags": ["monitoring"], "permissions": {"read": "^orders"}},
                answer=Named,
                statuses=(201, 200),
                action="user.put",
            ),
            Endpoint(
                "DELETE",
                "users/{user}",
                "Deletes a user.",
                requests.deleted,
                permission=ADMINISTRATORS,
                statuses=(204,),
                action="user.delete",
            ),
        ),
    )


class _UserRequests:
    def __init__(self, context: ServerContext) -> None:
        self._users = context.broker.users

    async def listed(self, call: Call) -> Answer:
        check_administrator(self._users, call.user)
        return Answer(list(lists.user_rows(self._users)))

    async def put(self, call: Call) -> Answer:
        check_administrator(self._users, call.user)
        name = call.names["user"]
        is_new = lists.change_user(self._users, name, call.body)
        return stored(Named(name), is_new=is_new)

    async def deleted(self, call: Call) -> Answer:
        check_administrator(self._users, call.user)
        self._users.remove(call.names["user"])
        return Answer(status=204)
