"""Images and files are parts of a message."""

from pathlib import Path

from mainspring import Agent, run

viewer = Agent(name="viewer", instructions="Describe what you see in one sentence.")
picture = Path(__file__).with_name("chart.png")
print(run(viewer, ["What does the chart show?", picture], key="image_in").output)
