"""What exists: schemas, the network and its file, QoS graphs, statistics. Imports nothing of ours."""
