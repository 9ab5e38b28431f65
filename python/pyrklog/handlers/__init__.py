"""Handlers of the APIs that Python serves: one module a subject.

A handler is ``async def name(context, request) -> response``: it decides nothing that the control
plane can decide, and turns its results into Kafka's answers. Beside it stands ``name_error(request,
code, message)``, the answer in which each part of the request has failed with one code.
"""
