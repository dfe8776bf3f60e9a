"""Malicious clients under sums, validated sums and robust rules: `veilsum reproduce attackers`."""
