"""The paper's theory, in numbers: `ssedb theory` measures every claim, docs/theory.md walks through them."""
