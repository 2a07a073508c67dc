"""Request and response models for users, tokens and the audit log."""

from typing import Annotated, Any

from pydantic import Field

from quire.api.models.requests import RequestModel, Short
from quire.api.models.responses import ResponseModel
from quire.control.access import LONGEST_DAYS
from quire.model.access import Role, Scope


class NewToken(RequestModel):
    """A token to create."""

    name: Short = Field(examples=["nightly import"], description="What the token is for.")
    scopes: list[Scope] | None = Field(
        None,
        min_length=1,
        max_length=len(Scope),
        description="What it may do; `write` includes `read`, `admin` both. Left out: all that "
        "its user may do.",
        examples=[["write"]],
    )
    days: Annotated[float, Field(ge=0, le=LONGEST_DAYS, allow_inf_nan=False)] | None = Field(
        None, description="Days until it expires; left out 90, with 0 never.", examples=[90]
    )
    user: Short | None = Field(None, description="Whose token; admins may name another user.")
    corpus: Short | None = Field(
        None, description="The only corpus that it may use; everything else is not there for it."
    )


class NewUser(RequestModel):
    """A user to add."""

    name: Short = Field(examples=["ada"])
    role: Role = Role.MEMBER


class NewRole(RequestModel):
    """The new role of a user."""

    role: Role


class Token(ResponseModel):
    """A token, without its value."""

    id: int
    name: str = Field(examples=["nightly import"])
    user: str = Field(examples=["ada"])
    scopes: list[Scope]
    corpus: str | None = Field(description="The only corpus that it may use; null: all.")
    state: str = Field(examples=["active"], description="active, expired or revoked")
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    address: str | None = Field(description="From which it was last used.")


class EndedSessions(ResponseModel):
    """How many sessions were ended."""

    count: int


class Session(ResponseModel):
    """A session of the dashboard."""

    id: int
    user: str = Field(examples=["ada"])
    address: str | None = Field(description="From which it was last seen.")
    current: bool = Field(description="It is the session of this request.")
    created_at: str
    last_seen_at: str
    expires_at: str


class CreatedToken(Token):
    """A new token, with its value."""

    token: str = Field(description="The token itself. It is not shown again.", examples=["quire_…"])


class User(ResponseModel):
    """A user of the tenant."""

    id: int
    name: str = Field(examples=["ada"])
    role: Role
    created_at: str
    signed_in_at: str | None
    disabled_at: str | None


class Tenant(ResponseModel):
    """A tenant: its limits by what they limit, and what it uses."""

    name: str = Field(examples=["acme"])
    #: Null: no limit.
    limits: dict[str, int | None]
    used: dict[str, int]


class SignInLink(ResponseModel):
    """A one-time link that signs a user in to the dashboard."""

    user: str
    path: str = Field(examples=["/sign-in/…"])
    url: str
    expires_at: str


class Me(ResponseModel):
    """The user of this request."""

    tenant: str
    user: str
    role: Role
    scopes: list[Scope]
    corpus: str | None = Field(description="The corpus that the token is bound to.")
    csrf: str | None = Field(description="CSRF token of a session; unsafe requests must send it.")


class AuditEntry(ResponseModel):
    """One entry of the audit log."""

    id: int
    at: str
    user: str | None = Field(description="Who did it; null for an unknown user.")
    action: str = Field(examples=["token.create"])
    subject: str | None
    detail: dict[str, Any]
    address: str | None
