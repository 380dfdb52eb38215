"""Cases of planning and workflows, run with the planner that the root uses.

__main__         the commands `planning` and `workflow`
planning_cases   HEFT, CPOP, PEFT and the root's planner on cases with known schedules
workflow_report  one workflow as one object of metrics
"""
