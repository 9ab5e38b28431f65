"""Files for running brokers as a service: a systemd unit, a container recipe, alert rules with
their runbooks, dashboards. ``pyrklog deploy`` writes them (:mod:`.files`)."""
