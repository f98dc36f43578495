"""A person agrees before money is spent; without the callback, the call would stay waiting."""

from mainspring import Agent, ApprovalRequest, run, tool


@tool(needs_approval=True, in_doubt="ask")
def pay(to: str, euros: int) -> str:
    """Pay an invoice."""
    return f"paid {euros} euros to {to}"


def answer(request: ApprovalRequest) -> bool | str:
    euros = request.input["euros"]
    is_small = isinstance(euros, int) and euros <= 100
    print(f"{request.tool} {euros}: {'yes' if is_small else 'no'}")
    return is_small or "More than 100 euros: ask the owner."


clerk = Agent(name="clerk", tools=[pay])
message = "Pay the plumber 80 euros and the roofer 900."
print(run(clerk, message, key="approval_callback", on_approval=answer).output)
