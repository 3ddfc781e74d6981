"""`lambda-svc ps plan`: memory, hit rate and shards of tables that do not exist yet. It asks no server.

popularity.py says how often each rank is looked up, hit_rate.py what a RAM budget then answers, sizing.py what rows
cost and how many hosts hold them, plan_file.py reads the tables, report.py and plot.py show it all.
"""

__all__: list[str] = []
