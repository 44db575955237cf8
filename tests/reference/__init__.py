"""Independent statements, in NumPy, of what bert_tf must compute. Nothing here imports bert_tf."""
