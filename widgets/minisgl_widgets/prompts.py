"""The five prompts that the demo, the first notebook and an empty dashboard begin with."""

PROMPTS = (  # 5, 5, 4, 15 and 5 tokens for SmolLM2: four fit into 64 pages, the fifth waits
    "The capital of France is",
    "Once upon a time,",
    "Two plus two is",
    "The radix tree keeps the beginnings of all prompts, so that two requests",
    "The capital of Italy is",
)
