"""Skills: their files, where they are found, what they may do, and how the model uses them."""
