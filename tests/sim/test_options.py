"""Options that change while a topic is served: which effects are immediate, which wait.

A is broker 1, B is broker 2; 3 is the controller. The partition is on A and B.
"""

from pyrklog.errors import ErrorCode
from tests.sim.options import UNCLEAN
from tests.sim.stage import Stage, stage_world

A, B, CONTROLLER = 1, 2, 3


def test_survivor_leads_once_unclean_elections_are_allowed() -> None:
    world = stage_world((A, B, CONTROLLER), ())
    with world.running():
        stage = Stage(world)
        stage.begin(CONTROLLER)
        stage.cut(A, B)
        # Only a replica that lacks something lags.
        assert stage.produce(A, acks=1) == ErrorCode.NONE
        stage.until("A alone in sync", lambda: stage.state().isr == (A,))
        assert stage.produce(A) == ErrorCode.NONE
        world.kill(A)
        stage.end_session(A)
        stage.until("nobody leads", lambda: stage.state().leader == -1)
        stage.wait(2)
        assert stage.state().leader == -1
        world.options.change(UNCLEAN, "true")
        stage.until("B leads", lambda: stage.role(B)[0] == "Leader")
        assert stage.epochs(B) == []
        world.options.forbid_unclean()
        stage.heal()
        world.start(A)
        stage.until("a whole cluster", lambda: world.checker.unsettled() is None)
        assert stage.produce(B) == ErrorCode.NONE
