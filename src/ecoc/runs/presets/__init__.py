"""Settings of the paper's experiments, one TOML file a dataset."""
