"""gin configurations, installed as package data; `meshtf-train --gin_file=<name>` finds them from any folder."""
