"""The paper's theory in numbers: `ssedb theory` measures every claim of docs/theory.md."""
