"""Handlers of the APIs that Python serves, one module a subject.

A handler is ``async def name(context, request) -> response``: it leaves decisions to the control
plane and turns results into Kafka's answers. ``name_error(request, code, message)`` makes the
answer in which every part of the request failed with ``code``; a module without it answers with the
response's own code.
"""
