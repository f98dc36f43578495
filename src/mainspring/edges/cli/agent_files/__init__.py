"""Commands about an agent's folder, skills, plugins, policy, models and environment."""
