"""``pyrklog doctor``: what is wrong with a cluster, or with this machine, and the fix."""
