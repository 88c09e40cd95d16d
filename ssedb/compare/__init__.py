"""Many runs: results, statistics, tables, figures."""
