"""What all sides must agree on: messages, schedule, shuffle, fixed point, wire format. No network, no disk."""
