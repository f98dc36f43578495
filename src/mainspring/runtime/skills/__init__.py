"""Skills: what they are, where they come from, what they may do, how the model gets to use them."""
