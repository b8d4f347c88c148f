"""What is read from logits."""

import numpy as np

from tenuto.pipelines.llama_cpp.sampling import logprobs


def test_what_the_model_rules_out_has_a_logprob_of_minus_infinity() -> None:
    told = logprobs(np.array([1.0, -np.inf, 0.0], np.float32), 3)(1)
    assert told.logprob == -np.inf
    assert told.top[2] == (1, -np.inf)
