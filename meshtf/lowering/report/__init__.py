"""Reports: the work and the costs of a plan, as data and as text. They need nothing but the plan."""
