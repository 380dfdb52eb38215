"""An ETL whose number of steps is known at run time only: a map over days, and a reduction of what it finds."""
