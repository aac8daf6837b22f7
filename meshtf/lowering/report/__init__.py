"""What a plan does and costs, as data and as text. From the plan alone."""
