"""The hook is read off vLLM's own source when the proposer loads."""

import pytest
from specdec_vllm.hook import HookError, check_caller


class Runner:
    """The calls that vLLM's model runners make, as far as they matter."""

    def as_in_0_32_and_0_33(self, spec_config, sampled_token_ids, slot_mappings):
        if spec_config.method == "ngram":
            self.drafter.propose(8, sampled_token_ids)
        elif spec_config.method == "custom_class":
            self.drafter.propose(
                sampled_token_ids,
                self.input_batch.num_tokens_no_spec,
                self.input_batch.token_ids_cpu,
                slot_mappings=slot_mappings,
            )
        elif spec_config.method == "suffix":
            self.drafter.propose(8, self.input_batch, sampled_token_ids)

    def with_one_more_argument(self, spec_config, sampled_token_ids):
        if spec_config.method == "custom_class":
            self.drafter.propose(
                8,
                sampled_token_ids,
                self.input_batch.num_tokens_no_spec,
                self.input_batch.token_ids_cpu,
            )

    def with_another_option(self, spec_config, sampled_token_ids):
        if spec_config.method == "custom_class":
            self.drafter.propose(
                sampled_token_ids,
                self.input_batch.num_tokens_no_spec,
                self.input_batch.token_ids_cpu,
                request_ids=self.input_batch.req_ids,
            )

    def without_our_method(self, spec_config, sampled_token_ids):
        if spec_config.method == "ngram":
            self.drafter.propose(8, sampled_token_ids)


def test_the_hook_of_0_32_and_0_33_is_known():
    check_caller(Runner.as_in_0_32_and_0_33, "0.33.0")


@pytest.mark.parametrize(
    ("caller", "found"),
    [
        (Runner.with_one_more_argument, r"self\.drafter\.propose\(8, sampled_token_ids"),
        (Runner.with_another_option, "request_ids"),
        (Runner.without_our_method, "no call for custom_class at all"),
    ],
)
def test_another_hook_is_refused_in_one_message(caller, found):
    with pytest.raises(HookError, match=rf"vLLM 0\.99.*found .*{found}.*0\.32 or 0\.33"):
        check_caller(caller, "0.99")


def test_a_vllm_without_source_is_taken_as_it_is():
    check_caller(len, "0.33.0")
