"""OpenAI's chat completions API and compatible servers."""
