"""Line-API widgets."""
