"""Prediction: columns of local predictions, questions and answers, batches, somebody missing."""
