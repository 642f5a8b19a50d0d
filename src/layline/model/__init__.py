"""A trained model: prediction, calibration, its file and its export."""
