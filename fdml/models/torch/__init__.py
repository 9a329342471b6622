"""Any torch.nn.Module as a local model."""
