"""What a campaign may change, track by track, and the checks that cost no trial."""
