from pyrklog.handlers.context import Context
from pyrklog.protocol.observation import ObserveBrokerRequest, ObserveBrokerResponse


async def observe_broker(context: Context, request: ObserveBrokerRequest) -> ObserveBrokerResponse:
    outcome = await context.service.observe(request.broker_id, request.timeout_ms / 1000)
    return ObserveBrokerResponse(outcome=outcome)
