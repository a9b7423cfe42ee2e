"""What is sent: names of the RPCs, requests and programs as bytes, and chunks of a stream."""
