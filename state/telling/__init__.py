"""What is said about a finding, and the next command."""
