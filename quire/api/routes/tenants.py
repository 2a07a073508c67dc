"""Tenants, their limits and what they use: for instance admins."""

from fastapi import Response

from quire.api.auth.authenticate import InstanceAdmin
from quire.api.models import responses as models
from quire.api.models.access import Tenant
from quire.api.responses import ApiResponse, Router
from quire.control import tenants

router = Router(prefix="/api/tenants", tags=["access"])


@router.on("GET", "", "List tenants", models.ListOf[Tenant])
def listing(caller: InstanceAdmin) -> Response:
    """List all tenants with their limits and what they use; there is no next page."""
    return ApiResponse({"items": tenants.listed(caller), "next": None})
