"""What requests about access carry, and the JSON that they are answered with."""

from typing import Annotated, Any

from pydantic import Field

from quire.api.models.requests import Body, Short
from quire.api.models.responses import Shape
from quire.control.access import LONGEST_DAYS
from quire.model.access import Role, Scope


class TokenBody(Body):
    """A token to be made."""

    name: Short = Field(examples=["nightly import"], description="What it is for.")
    scopes: list[Scope] | None = Field(
        None,
        min_length=1,
        max_length=len(Scope),
        description="What it may do; `write` includes `read`, `admin` both. Left out: all that "
        "its user may do.",
        examples=[["write"]],
    )
    days: Annotated[float, Field(gt=0, le=LONGEST_DAYS, allow_inf_nan=False)] | None = Field(
        None, description="Days until it expires; left out, it does not.", examples=[90]
    )
    user: Short | None = Field(None, description="Whose token; admins may name another user.")


class UserBody(Body):
    """A user to be added."""

    name: Short = Field(examples=["ada"])
    role: Role = Role.MEMBER


class RoleBody(Body):
    """Another role."""

    role: Role


class Token(Shape):
    """A token, without what it is known by."""

    id: int
    name: str = Field(examples=["nightly import"])
    user: str = Field(examples=["ada"])
    scopes: list[Scope]
    state: str = Field(examples=["active"], description="active, expired or revoked")
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None


class MadeToken(Token):
    """A token that was made just now."""

    token: str = Field(description="It is not shown again.", examples=["quire_…"])


class User(Shape):
    """A user of the tenant."""

    id: int
    name: str = Field(examples=["ada"])
    role: Role
    created_at: str
    signed_in_at: str | None
    disabled_at: str | None


class SignInLink(Shape):
    """Signs a user in to the dashboard once."""

    user: str
    path: str = Field(examples=["/sign-in/…"])
    url: str
    expires_at: str


class Me(Shape):
    """Who asks."""

    tenant: str
    user: str
    role: Role
    scopes: list[Scope]
    csrf: str | None = Field(description="Of a session: what unsafe requests must send back.")


class AuditRow(Shape):
    """Something that was done about access."""

    id: int
    at: str
    user: str | None = Field(description="Who did it; null where nobody known was let in.")
    action: str = Field(examples=["token.create"])
    subject: str | None
    detail: dict[str, Any]
    address: str | None
