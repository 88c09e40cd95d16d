"""Compiled functions compute what they replace, also where there is no compiler."""

import pytest
import torch

from ssedb.compiled import compiled
from ssedb.ppo import ppo_loss


class Without:
    """A machine that cannot compile."""

    tried = 0

    def __call__(self, function):
        def fail(*args):
            self.tried += 1
            raise torch._inductor.exc.TritonMissing(None)

        return fail


def test_compiled_without_a_compiler_runs_the_function_and_warns_once(monkeypatch):
    import torch._inductor.exc

    @compiled
    def double(x):
        return 2 * x

    x, compiler = torch.ones(2), Without()
    monkeypatch.setattr(torch, "compile", compiler)
    with pytest.warns(UserWarning, match="double is not compiled"):
        assert torch.equal(double(x), 2 * x)
    assert torch.equal(double(x), 2 * x)
    assert compiler.tried == 1


@pytest.mark.slow
def test_compiled_function_follows_every_number_it_is_given():
    """torch.compile may make one kernel for all values of a float and keep the first in it."""
    torch.manual_seed(0)
    fast = compiled(ppo_loss)
    given = torch.randn(64, 4), torch.randn(64), torch.randint(4, (64,)), *torch.randn(3, 64)
    for clip in (0.1, 0.2, 0.3, 0.4, 0.1):
        settings = {"clip": clip, "entropy_coef": clip / 10}
        loss, expected = (f(*given, **settings)[0] for f in (fast, ppo_loss))
        torch.testing.assert_close(loss, expected)
