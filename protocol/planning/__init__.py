"""From a goal and a cohort to the parameters of rounds, before any client is asked."""
