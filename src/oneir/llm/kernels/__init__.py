"""What language models compute besides the operators of graphs, as TensorIR functions in plain loops."""
