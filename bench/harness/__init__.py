"""What the measurements share: servers, clients, busy neighbours, and where results are kept."""
