"""Coverage without a model: how much of real calls was in the draft when its turn came.

The reference calls of the data sets are written in each call format, encoded with real tokenizers
and decoded by the engine with a target that writes exactly that text. So a drafter meets every
token of every call, and nothing has to be computed but its drafts.

A token is *structural* when none of its characters lies inside an argument's value; quotes,
separators, names and marks are structural, the end token is not counted. A token is *covered* when
it was accepted as a node of a draft; the bonus of a pass never is. Passes, steps and nodes are
counted as everywhere (`docs/design.md`, "Counting").

    python -m bench.coverage --stack "retrieval(from_start=true)" --stack pld --limit 50

What is known of these figures: the tools travel as `Request.tools`, a prompt holds them only where
the data's own prompts do (API-Bank); there are no embeddings, so a memory goes by tokens; and
`Step.top_ids` knows nothing but what the output has shown, so a drafter made of the target's second
choices (token-recycling) does worse here than behind a model.
"""
