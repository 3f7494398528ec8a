raise ValueError("out of breath")
