from pyrklog.handlers.context import Context
from pyrklog.protocol.health import BrokerHealthRequest, BrokerHealthResponse


async def broker_health(context: Context, request: BrokerHealthRequest) -> BrokerHealthResponse:
    return await context.service.health(request, context.session.host)
