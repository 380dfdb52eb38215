"""Ray Train inside a node of a graph: a gang whose placement group the workers share."""
